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
	Layers [][3]float64 `json:"layers"`           // by layer and pass: seconds over those of the phase; 0: there was no pass
	Within float64      `json:"within,omitempty"` // as observed has it; 0: it is not known
	Forget bool         `json:"forget,omitempty"` // costs of steps before this one do not hold
}

// precision is what multiples of costs are written to.
const precision = 1e5

// Knew takes the measurement that the estimator used of the step that is added next.
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

// relativeTo makes seconds multiples of what layers cost.
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

// check returns an error unless k has this number of layers, with seconds that a measurement
// can give.
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

// checkKnown wants no more than is known of every step.
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

// Again returns what is known of costs after a step that told this of them, in a layout.
// The gap between instructions is not known to balancers.
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
