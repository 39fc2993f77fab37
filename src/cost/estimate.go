package cost

import (
	"math"
	"slices"

	"dynmo/src/partition"
	"dynmo/src/random"
)

// Estimate is the estimated cost of layers from all usable steps, with its uncertainty. Deviations
// are standard errors relative to the cost. An infinite deviation means that nothing is known yet.
type Estimate struct {
	Table
	Layer []float64        `json:"layer"` // by layer: deviation of the layer alone
	Stage []float64        `json:"stage"` // by stage: deviation in common of all layers measured on the stage
	On    partition.Owners `json:"on"`    // by layer: the stage on which it was measured
	// Doubt is by stage. It is the share by which the layers measured there cost less, if its rank
	// was disturbed during the measurement. nil: no rank was disturbed.
	Doubt []float64 `json:"doubt,omitempty"`

	Disturbed bool `json:"-"` // a rank was slower in the newest step than at its best; ignored by Equal
}

// Equal reports whether two estimates are equal.
func (e Estimate) Equal(other Estimate) bool {
	return e.Table.Equal(other.Table) && slices.Equal(e.Layer, other.Layer) && slices.Equal(e.Stage, other.Stage) &&
		slices.Equal(e.On, other.On) && slices.Equal(e.Doubt, other.Doubt)
}

// Sure reports whether costs are known exactly, without deviations.
func (e Estimate) Sure() bool {
	positive := func(x float64) bool { return x > 0 }
	return !slices.ContainsFunc(e.Layer, positive) && !slices.ContainsFunc(e.Stage, positive) && !slices.ContainsFunc(e.Doubt, positive)
}

// Known reports whether every layer has a finite deviation: enough measurements.
func (e Estimate) Known() bool {
	infinite := func(x float64) bool { return math.IsInf(x, 1) }
	return !slices.ContainsFunc(e.Layer, infinite) && !slices.ContainsFunc(e.Stage, infinite)
}

// Undisturbed returns the estimate with every cost reduced by its doubt.
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

// Draw returns possible true costs, given the estimate and its deviations:
//
//	t_l · (1 + layer_l·x_l + stage_s·y_s)
//
// with x and y from the standard normal distribution. No layer gets less than a tenth of its
// estimate. Equal keys give equal draws.
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

// drawn separates the draws of estimates from other random numbers.
const drawn = 0x65737469
