package model

import (
	"errors"
	"slices"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Dispatch is which experts the tokens of a microbatch go to in a layer, on the host: what
// its backward needs of what its forward decided.
type Dispatch struct {
	entered Batch
	origin  *Batch // that the layer was entered by

	tokens   int
	logits   []float64 // (tokens, experts)
	scores   []float64 // (tokens, experts), by which balanced assignments are chosen
	router   []float64 // (2, tokens, experts), as kernel.RouteTokens has it
	readings []float64 // likewise
	dweights []float64 // (tokens, top)
	chosen   []int32   // (tokens, top): experts, the largest score first; or dropped
	weights  []float64 // (tokens, top)
	places   []int32   // (tokens, top): where the assignment is among the layer's, sorted by expert; or dropped
	ends     []int32   // by expert where its assignments begin; and where they all end: none of experts of other groups
	counts   []int32   // by expert: its assignments, wherever it is
	worked   []int32   // by expert that is here, then by replica whose tokens they are, where the rows that it works on begin; and where they all end
	sources  int       // these replicas
	groups   int       // layers that a block's experts are in
	top      int       // experts of a token

	left [2]tensor.Mem // where the device decides: where it leaves chosen and weights

	squashed []float64 // (tokens, experts) of a squashed router: tanh
	outer    []float64 // (experts, experts)

	scales, sums []float64 // by expert
}

// NewDispatch returns a dispatch of a microbatch at most, in a layer of these experts.
func NewDispatch(x *Exec, e Experts) *Dispatch {
	e.spreads(x)
	n := x.N()
	d := &Dispatch{
		logits: make([]float64, n*e.Count), scores: make([]float64, n*e.Count), router: make([]float64, 2*n*e.Count),
		readings: make([]float64, ExpertsFrom+e.Count), dweights: make([]float64, n*e.Top),
		chosen: make([]int32, n*e.Top), weights: make([]float64, n*e.Top), places: make([]int32, n*e.Top),
		ends: make([]int32, e.Count+1), counts: make([]int32, e.Count), scales: make([]float64, e.Count), sums: make([]float64, e.Count),
		sources: e.replicas(), groups: max(1, e.Groups), top: e.Top,
	}
	if e.Squashed {
		d.squashed, d.outer = make([]float64, n*e.Count), make([]float64, e.Count*e.Count)
	}
	d.worked = d.ends
	if e.Spread > 0 {
		d.worked = make([]int32, e.Count+1)
	}
	return d
}

// From returns b as it enters a layer that dispatches its tokens by d.
func (d *Dispatch) From(b *Batch) *Batch {
	d.origin, d.entered = b, *b
	d.entered.Dispatch = d
	return &d.entered
}

// assigned returns how many assignments have a place.
func (d *Dispatch) assigned() int { return int(d.ends[len(d.ends)-1]) }

// of returns the assignments [lo, hi) of an expert.
func (d *Dispatch) of(expert int) (lo, hi int) { return int(d.ends[expert]), int(d.ends[expert+1]) }

// rows returns how many rows the experts that are here work on.
func (d *Dispatch) rows() int { return int(d.worked[len(d.worked)-1]) }

// rowsOf returns the rows [lo, hi) that an expert works on, by its number here.
func (d *Dispatch) rowsOf(expert int) (lo, hi int) {
	return int(d.worked[expert*d.sources]), int(d.worked[(expert+1)*d.sources])
}

// Dispatches returns the experts that a layer dispatches tokens to; the zero value if it
// has none. If it has, the batch that enters it has a Dispatch, which a forward fills in.
func (l *Layer) Dispatches() Experts {
	i := slices.IndexFunc(l.parts, dispatches)
	if i < 0 {
		return Experts{}
	}
	if _, is := l.parts[i].(*expertGroup); !is {
		return l.config.Experts.whole()
	}
	return l.config.Experts
}

// dispatches reports whether a part has experts, or one within it.
func dispatches(p part) bool {
	switch p := p.(type) {
	case *experts, *expertGroup:
		return true
	case *routed:
		return slices.ContainsFunc(p.block.parts, dispatches)
	case *pair:
		return slices.ContainsFunc(p.parts, dispatches)
	}
	return false
}

// Choices returns the experts that each token goes to, by token the largest score first,
// negative where the assignment is dropped; and the weights of these. They are valid until
// the next forward. What the device decides is waited for.
func (d *Dispatch) Choices(x *Exec) (experts []int32, weights []float64, err error) {
	n := d.tokens * d.top
	if d.left[0].IsZero() {
		return d.chosen[:n], d.weights[:n], nil
	}
	waited := x.Stream.Sync()
	chosen, failed := device.Read(x.Device, d.left[0])
	wide, err := device.Read(x.Device, d.left[1])
	if err = errors.Join(waited, failed, err); err != nil {
		return nil, nil, err
	}
	for i := range n {
		d.weights[i] = number(wide, x.Backend.DType().Wide(), i)
	}
	return tensor.Of[int32](chosen)[:n], d.weights[:n], nil
}
