package profile

import (
	"fmt"
	"math"

	"dynmo/src/cost"
	"dynmo/src/layout"
)

// Known is the part of a step's measurement that the estimator used. With it a simulated run
// knows as much about costs after every step as the real run did.
type Known struct {
	Layers [][3]float64 `json:"layers"`           // by layer and pass: seconds divided by those of the phase; 0: the pass did not run
	Within float64      `json:"within,omitempty"` // see observed.Within; 0: not known
	Forget bool         `json:"forget,omitempty"` // costs of steps before this one are no longer valid
}

// precision is the rounding of costs relative to others: to 1/precision.
const precision = 1e5

// Knew records the measurement that the estimator used for the next step that Add receives.
func (l *Log) Knew(m Measurement) {
	if m.Work != nil || m.Samples == nil {
		l.knows = nil // shares of tokens are not written
		return
	}
	l.knows = &Known{Layers: make([][3]float64, len(m.values)), Forget: m.forget}
	for i, v := range m.values {
		l.knows.Layers[i] = passesOf(v.Stage)
	}
	if within := middleOf(m.values); !math.IsInf(within, 1) {
		l.knows.Within = within
	}
}

// relativeTo divides the seconds by the costs of the layers.
func (k *Known) relativeTo(layers []cost.Layer) {
	for l := range k.Layers {
		costs := passesOf(layers[l].Stage())
		for i, x := range k.Layers[l] {
			if k.Layers[l][i] = 0; costs[i] > 0 {
				k.Layers[l][i] = math.Round(precision*x/costs[i]) / precision
			}
		}
	}
}

// check returns an error unless k has this number of layers and all seconds are in the range of
// measurements.
func (k Known) check(layers int) error {
	if len(k.Layers) != layers {
		return fmt.Errorf("layers: %d, want %d", len(k.Layers), layers)
	}
	if !(k.Within >= 0 && k.Within <= cost.MostSeconds) {
		return fmt.Errorf("within: %v, want 0 to %g", k.Within, cost.MostSeconds)
	}
	for l, row := range k.Layers {
		for _, x := range row {
			if !(x >= 0 && x <= cost.MostSeconds) {
				return fmt.Errorf("layers[%d]: %v, want numbers from 0 to %g", l, x, cost.MostSeconds)
			}
		}
	}
	return nil
}

// checkKnown returns an error if a phase has more Known than steps, or one that is wrong.
func (p Phase) checkKnown(layers int) error {
	if n := len(p.Known); n > p.Steps {
		return fmt.Errorf("known: %d steps, want at most %d", n, p.Steps)
	}
	for step, k := range p.Known {
		if err := k.check(layers); err != nil {
			return fmt.Errorf("known[%d].%w", step, err)
		}
	}
	return nil
}

// Again feeds a recorded step into the profiler and returns the estimate after it, in layout l.
// Balancers do not know the dispatch overhead.
func (p *Profiler) Again(t cost.Table, k Known, l layout.Layout) cost.Estimate {
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
