// Package cost says what each layer of the chain costs.
package cost

import "slices"

// Layer is the cost of one layer for one microbatch, and the memory it needs.
type Layer struct {
	Name           string  `json:"name"`
	Forward        float64 `json:"forward"`         // seconds
	BackwardInput  float64 `json:"backward_input"`  // seconds
	BackwardWeight float64 `json:"backward_weight"` // seconds
	NonZeros       int64   `json:"non_zeros"`       // parameters that are left
	Output         int64   `json:"output"`          // bytes of a microbatch that go on to the next layer, and come back as gradient
	// Rows is the bytes of one replica's microbatch that the replicas of the stage exchange in
	// a pass. The same bytes come back. A part of them stays on its rank. Exchanges take time
	// that the seconds do not contain.
	Rows  int64 `json:"rows,omitempty"`
	Bytes Bytes `json:"bytes"`
}

// Bytes is a layer's memory by kind.
type Bytes struct {
	Parameters  int64 `json:"parameters"`
	Gradients   int64 `json:"gradients"`
	Own         int64 `json:"own,omitempty"` // of the gradients: those that a replica has of its own, which are not summed
	Optimizer   int64 `json:"optimizer"`
	Workspace   int64 `json:"workspace"`            // of tables that count what sums gradients over replicas by layer; else 0
	Activations int64 `json:"activations"`          // for each microbatch in flight
	Held        int64 `json:"held"`                 // for each microbatch between its two backwards
	Recomputed  int64 `json:"recomputed,omitempty"` // for each microbatch whose forward, or second forward, is there (see schedule.Peak.Recomputed)
}

// Summed returns the gradients that are summed over replicas if the layer trains.
func (b Bytes) Summed() int64 { return b.Gradients - b.Own }

// Static returns the bytes that do not depend on microbatches.
func (b Bytes) Static() int64 { return b.Parameters + b.Gradients + b.Optimizer + b.Workspace }

// Stage returns the seconds of the layer, as a stage that holds it alone has them.
func (l Layer) Stage() Stage { return Stage{l.Forward, l.BackwardInput, l.BackwardWeight} }

// WithSeconds returns the layer with other seconds.
func (l Layer) WithSeconds(s Stage) Layer {
	l.Forward, l.BackwardInput, l.BackwardWeight = s.Forward, s.Input, s.Weight
	return l
}

// Summed returns the gradients that are summed over replicas: none of a frozen layer, whose
// forward alone takes time.
func (l Layer) Summed() int64 {
	if l.Forward > 0 && l.BackwardWeight == 0 {
		return 0
	}
	return l.Bytes.Summed()
}

// Seconds returns f+i+w.
func (l Layer) Seconds() float64 { return l.Stage().Seconds() }

// Table is the cost of every layer of the chain, and the speed of every stage.
// Measuring layers tells nothing of Fixed: it is for costs that come from a
// file, or from a benchmark of the node.
type Table struct {
	Clock    string    `json:"clock"`            // wall, virtual or sim; estimated, where nothing was measured
	Device   string    `json:"device,omitempty"` // GPU that seconds were estimated for
	Layers   []Layer   `json:"layers"`
	Slow     []float64 `json:"slow,omitempty"`             // by stage: how many times slower than the reference; absent means 1
	Dispatch float64   `json:"dispatch_seconds,omitempty"` // seconds from one instruction of a stage to the next, at least: what its host does in between
	Fixed    []float64 `json:"fixed,omitempty"`            // by stage: seconds per microbatch that no layer accounts for
	// Scale is by layer and microbatch: how many times its seconds that microbatch
	// takes, where layers work on other numbers of tokens in each. Absent means 1, for a
	// layer too. All layers' microbatches are the same ones, so that one which is short
	// stays short behind an exit.
	Scale [][]float64 `json:"scale,omitempty"`
}

// Source returns the origin of the seconds: the clock that measured them, or the device that they
// were estimated for.
func (t Table) Source() string {
	if t.Device != "" {
		return t.Clock + " for " + t.Device
	}
	return t.Clock
}

// Fitted returns the table for a number of stages: speeds and fixed seconds of ranks
// that were measured on another number hold for none of these.
func (t Table) Fitted(stages int) Table {
	if len(t.Slow) != stages {
		t.Slow = nil
	}
	if len(t.Fixed) != stages {
		t.Fixed = nil
	}
	return t
}

// Equal reports whether two tables say the same.
func (t Table) Equal(other Table) bool {
	return t.Clock == other.Clock && t.Device == other.Device && t.Dispatch == other.Dispatch && slices.Equal(t.Layers, other.Layers) &&
		slices.Equal(t.Slow, other.Slow) && slices.Equal(t.Fixed, other.Fixed) &&
		slices.EqualFunc(t.Scale, other.Scale, slices.Equal[[]float64])
}

// Seconds returns f+i+w of every layer.
func (t Table) Seconds() []float64 {
	s := make([]float64, len(t.Layers))
	for l := range t.Layers {
		s[l] = t.Layers[l].Seconds()
	}
	return s
}

// NonZeros returns the parameters that are left in every layer.
func (t Table) NonZeros() []float64 {
	s := make([]float64, len(t.Layers))
	for l := range t.Layers {
		s[l] = float64(t.Layers[l].NonZeros)
	}
	return s
}
