package layerdrop

import (
	"math"

	"dynmo/src/model"
	"dynmo/src/tensor"
)

// blockGates puts a gate before each part of every block.
type blockGates struct{ model.Modest }

func (blockGates) Name() string       { return "layerdrop" }
func (blockGates) Phase() model.Phase { return model.AroundBlocks }
func (blockGates) Beyond() bool       { return false }

// Extend gives the parts of every block gates.
func (blockGates) Extend(_ model.Config, chain []model.Description) []model.Description {
	return model.EachBlock(chain, func(d model.Description) model.Description {
		for i, p := range d.Makers {
			d.Makers[i].New = func() model.Part { return &gated{Part: p.New(), gate: 1} }
		}
		return d
	})
}

// gated is a part f(x) = x + path(x) whose path is left out in some steps. With p the share of
// the steps in which the path is kept, and q = 1/p,
//
//	out = x + q·path(x) = q·f(x) + (1-q)·x    in a step that keeps the path
//	out = x                                   in a step that drops it
//
// so that the mean of out over draws is that of the whole model, which validation computes.
// In a step that drops the path its parameters have gradients of zero: AdamW shrinks their
// moments, and decays and moves the weights, as with any gradient of zero.
type gated struct {
	model.Part
	gate float64 // p, and negative in a step that drops the path
}

// Tuned returns the gate.
func (g *gated) Tuned() []*float64 { return []*float64{&g.gate} }

// share returns p.
func (g *gated) share() float64 { return math.Abs(g.gate) }

// drops reports whether the path is left out of a pass.
func (g *gated) drops(x *model.Exec) bool { return g.gate < 0 && !x.Validates }

// scales reports whether the path is scaled in a pass that keeps it.
func (g *gated) scales(x *model.Exec) bool { return g.gate != 1 && !x.Validates }

// NewWork returns the Work of the part within its own.
func (g *gated) NewWork(x *model.Exec, room model.Room) model.Work {
	w := &work{x: x, gated: g, within: g.Part.NewWork(x, room)}
	c := model.Cutter{}
	w.cut(&c)
	w.memory, w.host = room.OnDevice(c.Off), room.OnHost(c.Off)
	return w
}

// Memory returns the part's memory, followed in `held` by the gradient of the gated layer's input.
func (g *gated) Memory(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (out tensor.Mem, savedBytes, heldBytes int64) {
	out, savedBytes, heldBytes = g.Part.Memory(x, inside(b), saved, held)
	c := x.Cut(b, tensor.Mem{})
	c.Boundary(x, g.Leaves())
	return out, savedBytes, heldBytes + c.Off
}

// scaled returns the memory of the gradient that enters the part: q·dout.
func (g *gated) scaled(x *model.Exec, b *model.Batch, held tensor.Mem) tensor.Mem {
	_, _, bytes := g.Part.Memory(x, inside(b), tensor.Mem{}, tensor.Mem{})
	return x.Cut(b, held.Span(bytes, held.Bytes-bytes)).Boundary(x, g.Leaves())
}

func (g *gated) Feed(x *model.Exec, b *model.Batch, saved tensor.Mem, tokens, targets []int32) {
	g.Part.Feed(x, inside(b), saved, tokens, targets)
}

func (g *gated) Reading(x *model.Exec, b *model.Batch, saved tensor.Mem, i int) tensor.Mem {
	return g.Part.Reading(x, inside(b), saved, i)
}

func (g *gated) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	out, _, _ := g.Memory(x, b, saved, tensor.Mem{})
	if g.drops(x) {
		for i := range g.Readings() {
			x.Stream.Zero(g.Reading(x, b, saved, i))
		}
		x.Stream.Copy(out, inp)
		return nil
	}
	if err := g.Part.Forward(x, inside(b), saved, inp); err != nil || !g.scales(x) || b.Queries == 0 {
		return err
	}
	rows, q, rest, _ := b.Work.(*work).factors(b.Queries)
	x.Backend.ScatterRows(x.Stream, b.QueryRows(out), b.QueryRows(inp), rows, q, rest, b.Queries, g.Leaves().Values)
	return nil
}

func (g *gated) BackwardInput(x *model.Exec, b *model.Batch, saved, held, inp, dout, din tensor.Mem) error {
	if g.drops(x) {
		if !din.IsZero() {
			x.Stream.Copy(din, dout)
		}
		return nil
	}
	if !g.scales(x) || b.Queries == 0 {
		return g.Part.BackwardInput(x, inside(b), saved, held, inp, dout, din)
	}
	rows, q, rest, one := b.Work.(*work).factors(b.Queries)
	scaled := g.scaled(x, b, held)
	b.Carry(x, scaled, dout)
	x.Backend.GatherRows(x.Stream, b.QueryRows(scaled), b.QueryRows(dout), rows, q, b.Queries, g.Leaves().Values)
	if err := g.Part.BackwardInput(x, inside(b), saved, held, inp, scaled, din); err != nil || din.IsZero() {
		return err
	}
	x.Backend.ScatterRows(x.Stream, b.QueryRows(din), b.QueryRows(dout), rows, one, rest, b.Queries, g.Leaves().Values)
	return nil
}

func (g *gated) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, inp, dout tensor.Mem) error {
	if g.drops(x) {
		return nil
	}
	if g.scales(x) && b.Queries > 0 {
		dout = g.scaled(x, b, held)
	}
	return g.Part.BackwardWeight(x, inside(b), saved, held, inp, dout)
}
