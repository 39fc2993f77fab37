package cost

import (
	"math"
	"slices"

	"dynmo/src/partition"
	"dynmo/src/random"
)

// Estimate is what layers are taken to cost from all steps that say something of
// it, and how sure that is. Deviations are standard errors, relative to the cost;
// infinite ones say that nothing is known yet.
type Estimate struct {
	Table
	Layer []float64        `json:"layer"` // by layer: the deviation that it has alone
	Stage []float64        `json:"stage"` // by stage: the deviation that all layers measured on it have in common
	On    partition.Owners `json:"on"`    // by layer: the stage it was measured on
	// Doubt is by stage the share by which layers measured on it cost less, if its rank
	// was disturbed while they were measured; nil: no rank was.
	Doubt []float64 `json:"doubt,omitempty"`

	Disturbed bool `json:"-"` // a rank was slower in the newest step than at its best: no part of what Equal compares
}

// Equal reports whether two estimates say the same.
func (e Estimate) Equal(other Estimate) bool {
	return e.Table.Equal(other.Table) && slices.Equal(e.Layer, other.Layer) && slices.Equal(e.Stage, other.Stage) &&
		slices.Equal(e.On, other.On) && slices.Equal(e.Doubt, other.Doubt)
}

// Sure reports whether costs are known without a deviation.
func (e Estimate) Sure() bool {
	positive := func(x float64) bool { return x > 0 }
	return !slices.ContainsFunc(e.Layer, positive) && !slices.ContainsFunc(e.Stage, positive) && !slices.ContainsFunc(e.Doubt, positive)
}

// Known reports whether every layer has been measured often enough to say
// anything.
func (e Estimate) Known() bool {
	infinite := func(x float64) bool { return math.IsInf(x, 1) }
	return !slices.ContainsFunc(e.Layer, infinite) && !slices.ContainsFunc(e.Stage, infinite)
}

// Undisturbed returns the estimate if all doubts are right: layers cost as much less.
func (e Estimate) Undisturbed() Estimate {
	t := slices.Clone(e.Layers)
	for l := range t {
		if e.Doubt != nil {
			t[l] = t[l].WithSeconds(t[l].Stage().Scale(1 - e.Doubt[e.On[l]]))
		}
	}
	e.Layers, e.Doubt = t, nil
	return e
}

// Draw returns costs that could be the true ones as far as the measurements tell:
//
//	t_l · (1 + layer_l·x_l + stage_s·y_s)
//
// with x and y drawn from the normal distribution, and no layer below a tenth of
// its estimate, whatever is in doubt. Equal keys give equal draws.
func (e Estimate) Draw(key uint64) Table {
	draw := random.Keyed(drawn, key)
	common := make([]float64, len(e.Stage))
	for s, deviation := range e.Stage {
		common[s] = deviation * draw.NormFloat64()
	}
	t := e.Table
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		factor := 1 + e.Layer[l]*draw.NormFloat64() + common[e.On[l]]
		t.Layers[l] = t.Layers[l].WithSeconds(t.Layers[l].Stage().Scale(max(0.1, factor)))
	}
	return t
}

// drawn sets the draws of estimates apart from the other random numbers.
const drawn = 0x65737469
