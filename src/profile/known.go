package profile

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/layout"
)

// Known returns the part of the measurement that the estimator used; nil if layers worked on only some
// of the tokens, or nothing was sampled.
func (m Measurement) Known() *cost.Known {
	if m.Work != nil || m.Samples == nil {
		return nil // shares of tokens are not written
	}
	k := &cost.Known{Layers: make([][3]float64, len(m.values)), Forget: m.forget}
	for i, v := range m.values {
		k.Layers[i] = passesOf(v.Stage)
	}
	if within := middleOf(m.values); !math.IsInf(within, 1) {
		k.Within = within
	}
	return k
}

// Again feeds a recorded step into the profiler and returns the estimate after it, in layout l.
// Balancers do not know the dispatch overhead.
func (p *Profiler) Again(t cost.Table, k cost.Known, l layout.Layout) cost.Estimate {
	t.Dispatch = 0
	values := make([]value, len(t.Layers))
	for i, layer := range t.Layers {
		costs := passesOf(layer.Stage())
		for pass := range costs {
			costs[pass] *= k.Layers[i][pass]
		}
		values[i] = value{costs.stage(), k.Within}
		if k.Within == 0 {
			values[i].deviation = math.Inf(1)
		}
	}
	return p.estimator.observe(cost.Measurement{Table: t}, values, l.Owners(), k.Forget)
}
