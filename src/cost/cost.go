// Package cost defines the cost of layers and stages: seconds, bytes and their uncertainty.
package cost

import (
	"maps"
	"slices"
	"strings"
)

// Layer is the cost of one layer for one microbatch, and the memory it needs.
type Layer struct {
	Name           string  `json:"name"`
	Forward        float64 `json:"forward"`         // seconds
	BackwardInput  float64 `json:"backward_input"`  // seconds
	BackwardWeight float64 `json:"backward_weight"` // seconds
	NonZeros       int64   `json:"non_zeros"`       // parameters that are not pruned
	Output         int64   `json:"output"`          // bytes of a microbatch that are sent to the next layer, and that return as gradient
	// Rows is the bytes that the replicas of a stage exchange in a pass, for one replica's
	// microbatch. The same bytes return. A part of them stays on its rank. The time of exchanges is
	// not part of the seconds.
	Rows  int64 `json:"rows,omitempty"`
	Bytes Bytes `json:"bytes"`
}

// Bytes is a layer's memory by kind.
type Bytes struct {
	Parameters  int64 `json:"parameters"`
	Gradients   int64 `json:"gradients"`
	Own         int64 `json:"own,omitempty"` // part of the gradients: those of parameters that only one replica has, which are not summed
	Optimizer   int64 `json:"optimizer"`
	Workspace   int64 `json:"workspace"`            // buffers for sums of gradients over replicas by layer, in tables that count them; else 0
	Activations int64 `json:"activations"`          // for each microbatch in flight
	Held        int64 `json:"held"`                 // for each microbatch between its I and its W
	Recomputed  int64 `json:"recomputed,omitempty"` // for each microbatch with a first or second forward in memory (see schedule.Peak.Recomputed)
}

// Summed returns the bytes of gradients that are summed over replicas if the layer trains.
func (b Bytes) Summed() int64 { return b.Gradients - b.Own }

// Static returns the bytes that do not depend on microbatches.
func (b Bytes) Static() int64 { return b.Parameters + b.Gradients + b.Optimizer + b.Workspace }

// Stage returns the cost of a stage with only this layer.
func (l Layer) Stage() Stage { return Stage{l.Forward, l.BackwardInput, l.BackwardWeight} }

// WithSeconds returns the layer with other seconds.
func (l Layer) WithSeconds(s Stage) Layer {
	l.Forward, l.BackwardInput, l.BackwardWeight = s.Forward, s.Input, s.Weight
	return l
}

// Summed returns the bytes of gradients that are summed over replicas. It is 0 for a frozen layer,
// which only takes time for its forward.
func (l Layer) Summed() int64 {
	if l.Forward > 0 && l.BackwardWeight == 0 {
		return 0
	}
	return l.Bytes.Summed()
}

// Seconds returns the sum of the three passes.
func (l Layer) Seconds() float64 { return l.Stage().Seconds() }

// Table is the cost of every layer of the chain, and the speed of every stage. Measurements of
// layers do not give Fixed. It is for costs from a file or from a benchmark of the node.
type Table struct {
	Clock    string    `json:"clock"`            // wall, virtual or sim; Estimated if nothing was measured
	Device   string    `json:"device,omitempty"` // GPU that seconds were estimated for
	Layers   []Layer   `json:"layers"`
	Slow     []float64 `json:"slow,omitempty"`             // by stage: time relative to the reference rank; absent means 1
	Dispatch float64   `json:"dispatch_seconds,omitempty"` // least seconds from one instruction of a stage to the next: the work of its host in between
	Fixed    []float64 `json:"fixed,omitempty"`            // by stage: seconds per microbatch that belong to no layer
	// Scale is by layer and microbatch: the seconds of the microbatch divided by the layer's
	// seconds. They differ if layers work on different numbers of tokens. Absent means 1; a row may
	// be absent too. Row index m is the same microbatch in all layers, so a microbatch that is
	// short after an exit is short in all later layers.
	Scale [][]float64 `json:"scale,omitempty"`
	// Deviation is by layer: the standard error of its seconds, relative to them. Absent means unknown.
	Deviation []float64 `json:"deviation,omitempty"`
	// Unseparated are combinations of kinds of layers that a measurement of whole stages leaves open.
	Unseparated []Combination `json:"unseparated,omitempty"`
}

// Combination is numbers of layers by kind, a name without its number: N stands for it. The costs of the
// kinds may change by any multiple of these numbers, and every measured stage keeps its seconds.
type Combination map[string]float64

// String names the kinds.
func (c Combination) String() string { return strings.Join(slices.Sorted(maps.Keys(c)), ", ") }

// Estimated is the clock of tables whose seconds no machine measured.
const Estimated = "estimated"

// Source returns the origin of the seconds: the clock that measured them, or the device that they
// were estimated for.
func (t Table) Source() string {
	if t.Device != "" {
		return t.Clock + " for " + t.Device
	}
	return t.Clock
}

// Fitted returns the table for a number of stages. It drops speeds and fixed seconds that were
// measured on another number of stages.
func (t Table) Fitted(stages int) Table {
	if len(t.Slow) != stages {
		t.Slow = nil
	}
	if len(t.Fixed) != stages {
		t.Fixed = nil
	}
	return t
}

// Equal reports whether two tables are equal.
func (t Table) Equal(other Table) bool {
	return t.Clock == other.Clock && t.Device == other.Device && t.Dispatch == other.Dispatch && slices.Equal(t.Layers, other.Layers) &&
		slices.Equal(t.Slow, other.Slow) && slices.Equal(t.Fixed, other.Fixed) &&
		slices.EqualFunc(t.Scale, other.Scale, slices.Equal[[]float64])
}

// Weightless reports whether no layer has bytes, as in files with seconds alone.
func (t Table) Weightless() bool {
	return !slices.ContainsFunc(t.Layers, func(l Layer) bool { return l.Bytes != Bytes{} })
}

// Seconds returns the seconds of all three passes of every layer.
func (t Table) Seconds() []float64 {
	s := make([]float64, len(t.Layers))
	for l := range t.Layers {
		s[l] = t.Layers[l].Seconds()
	}
	return s
}

// NonZeros returns the number of parameters of every layer that are not pruned.
func (t Table) NonZeros() []float64 {
	s := make([]float64, len(t.Layers))
	for l := range t.Layers {
		s[l] = float64(t.Layers[l].NonZeros)
	}
	return s
}
