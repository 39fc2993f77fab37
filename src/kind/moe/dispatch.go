package moe

import (
	"dynmo/src/model"
)

// dispatch is what the host knows of where the tokens of a microbatch go among the experts of
// a layer, from its forward on.
type dispatch struct {
	entered model.Batch
	origin  *model.Batch // that the layer was entered by

	x *model.Exec
	divided

	// Where the host waits for the rows of experts:
	ends   []int32 // by expert where its assignments begin; and where they all end
	worked []int32 // by expert that is here, then by replica whose tokens they are, where the rows that it works on begin; and where they all end
}

func newDispatch(x *model.Exec, e divided) *dispatch {
	d := &dispatch{x: x, divided: e, ends: make([]int32, e.placed()+1)}
	d.worked = d.ends
	if e.Spread > 0 {
		d.worked = make([]int32, e.Count+1)
	}
	return d
}

// Enter returns b as it enters a layer that dispatches its tokens by d.
func (d *dispatch) Enter(b *model.Batch) *model.Batch {
	d.spreads(d.x)
	d.origin, d.entered = b, *b
	d.entered.Work = d
	return &d.entered
}

// Skip does nothing: none of no tokens goes anywhere.
func (d *dispatch) Skip() error { return nil }

// Leaves returns the batch that entered.
func (d *dispatch) Leaves() *model.Batch { return d.origin }

// Worked returns the tokens that are computed; where experts are spread over replicas, those
// of all replicas that the experts here compute. Of a group of experts only its reading
// GroupRows tells.
func (d *dispatch) Worked() int {
	if d.Spread > 1 {
		return int(d.worked[len(d.worked)-1]) / d.Top
	}
	return d.entered.Computes()
}

// Expected returns 1.
func (d *dispatch) Expected() float64 { return 1 }

// Repeats reports true: what passes call depends on the batch alone.
func (d *dispatch) Repeats() bool { return true }

// of returns the assignments [lo, hi) of an expert.
func (d *dispatch) of(expert int) (lo, hi int) { return int(d.ends[expert]), int(d.ends[expert+1]) }

// rowsOf returns the rows [lo, hi) that an expert works on, by its number here.
func (d *dispatch) rowsOf(expert int) (lo, hi int) {
	return int(d.worked[expert*d.replicas()]), int(d.worked[(expert+1)*d.replicas()])
}
