package model

import (
	"errors"
	"slices"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Dispatch is what the host knows of where the tokens of a microbatch go among the experts of
// a layer, from its forward on.
type Dispatch struct {
	entered Batch
	origin  *Batch // that the layer was entered by

	tokens  int
	left    [2]tensor.Mem // where the device leaves the experts of each token, the largest score first, and their weights
	chosen  []int32       // (tokens, top): these, once Choices has read them
	weights []float64     // (tokens, top)
	top     int           // experts of a token

	// Where the host waits for the rows of experts:
	ends    []int32 // by expert where its assignments begin; and where they all end
	worked  []int32 // by expert that is here, then by replica whose tokens they are, where the rows that it works on begin; and where they all end
	sources int     // these replicas
}

// NewDispatch returns a dispatch of a microbatch at most, in a layer of these experts.
func NewDispatch(x *Exec, e Experts) *Dispatch {
	e.spreads(x)
	n := x.N()
	d := &Dispatch{
		chosen: make([]int32, n*e.Top), weights: make([]float64, n*e.Top), ends: make([]int32, e.placed()+1),
		sources: e.replicas(), top: e.Top,
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
// the next forward. It waits for the device.
func (d *Dispatch) Choices(x *Exec) (experts []int32, weights []float64, err error) {
	n := d.tokens * d.top
	waited := x.Stream.Sync()
	chosen, failed := device.Read(x.Device, d.left[0])
	wide, err := device.Read(x.Device, d.left[1])
	if err = errors.Join(waited, failed, err); err != nil {
		return nil, nil, err
	}
	copy(d.chosen, tensor.Of[int32](chosen))
	for i := range n {
		d.weights[i] = number(wide, x.Backend.DType().Wide(), i)
	}
	return d.chosen[:n], d.weights[:n], nil
}
