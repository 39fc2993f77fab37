package profile

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/layout"
)

// Known returns the part of the measurement that the estimator used. Its Layers are in seconds; package
// record divides them by the costs of the phase. Known returns nil if nothing was sampled, or if
// layers worked on only some of the tokens.
func (m Measurement) Known() *cost.Known {
	if m.Work != nil || m.Samples == nil {
		return nil // a cost.Known has no shares of tokens
	}
	k := &cost.Known{Layers: make([][3]float64, len(m.values)), Forget: m.forget}
	for i, v := range m.values {
		k.Layers[i] = passesOf(v.Stage)
	}
	if deviation := medianDeviation(m.values); !math.IsInf(deviation, 1) {
		k.Within = deviation
	}
	return k
}

// Again feeds a recorded step into the profiler, and returns the estimate after this step. t has the
// costs of the recorded phase, k what the estimator used of the step, and l the layout of the step.
// The estimate has no dispatch overhead, because balancers do not know it.
func (p *Profiler) Again(t cost.Table, k cost.Known, l layout.Layout) cost.Estimate {
	t.Dispatch = 0
	values := make([]value, len(t.Layers))
	for i, layer := range t.Layers {
		costs := passesOf(layer.Stage())
		for pass := range costs {
			costs[pass] *= k.Layers[i][pass] // back to seconds
		}
		values[i] = value{costs.stage(), k.Within}
		if k.Within == 0 {
			values[i].deviation = math.Inf(1)
		}
	}
	return p.estimator.observe(cost.Measurement{Table: t}, values, l.Owners(), k.Forget)
}
