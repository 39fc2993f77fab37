package main

import (
	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/plan"
)

// ceilingOf returns the largest speedup over a run on its first cuts that any
// balancer can have on the same work, as balance.Ceiling estimates it, with
// stretches by the time they take on those cuts:
//
//	Σ t / Σ (t / ceiling)
//
// still is that run of the series. It is 0 where stages hold several chunks, of
// which the estimate knows nothing.
func ceilingOf(series cost.Series, still plan.Run, o plan.Options) (float64, error) {
	p, err := plan.New(o.Config, o.Network, nil)
	if err != nil || p.Map.Chunks > 1 {
		return 0, err
	}
	static, best := 0.0, 0.0
	for i, l := range still.Legs { // a leg is a stretch: nothing moves within
		present := balance.Result{StageSeconds: plan.Loads(p.Map, l.Plan.Costs), Bottleneck: l.Plan.Bottleneck}
		ceiling, err := balance.Ceiling(p.Line(series[i].Mean()), present, p.Microbatches)
		if err != nil {
			return 0, err
		}
		seconds := l.Seconds * float64(l.Steps)
		static += seconds
		best += seconds / ceiling
	}
	return static / best, nil
}
