package main

import (
	"dynmo/src/balance"
	"dynmo/src/config"
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
	c := o.Config
	c.Balance = config.Default().Balance // neither memory nor gaps make the bound
	p, err := plan.New(c, o.Network, nil)
	if err != nil || p.Map.Chunks > 1 {
		return 0, err
	}
	static, best := 0.0, 0.0
	for i, l := range still.Legs { // a leg is a stretch: nothing moves within
		present := balance.Result{Bottleneck: l.Plan.Bottleneck}
		for _, x := range l.Plan.Costs {
			present.StageSeconds = append(present.StageSeconds, x.Seconds())
		}
		ceiling, err := balance.Ceiling(p.Problem(series[i].Mean(), balance.ByTime), present, p.Microbatches)
		if err != nil {
			return 0, err
		}
		seconds := l.Seconds * float64(l.Steps)
		static += seconds
		best += seconds / ceiling
	}
	return static / best, nil
}
