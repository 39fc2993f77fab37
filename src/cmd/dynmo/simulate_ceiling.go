package main

import (
	"dynmo/src/plan"
)

// ceilingOf returns the largest speedup over a run on its first cuts that any
// balancer can have on the same work, as balance.Ceiling estimates it, with
// phases by the time they take on those cuts:
//
//	Σ t / Σ (t / ceiling)
//
// still is that run. It is 0 where stages hold several chunks, of
// which the estimate knows nothing.
func ceilingOf(still plan.Run, o plan.Options) (float64, error) {
	p, err := plan.New(o.Config, o.Network, nil)
	if err != nil || p.Map.Chunks > 1 {
		return 0, err
	}
	static, best := 0.0, 0.0
	for _, l := range still.Legs { // a leg is a phase: nothing moves within
		seconds := l.Seconds * float64(l.Steps)
		static += seconds
		best += seconds / l.Plan.Ceiling
	}
	return static / best, nil
}
