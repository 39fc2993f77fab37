// Package mod is the mixture of depths: every second block takes some of the tokens, the others pass by it.
package mod

import (
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Depths is a mixture of depths (Raposo et al. 2024): what every second block, the
// second, the fourth, …, does with the tokens. The zero value routes none.
type Depths struct {
	model.Modest
	Capacity  float64 // share of a sequence's tokens that are the first, rounded up to a token
	Predictor bool    // a predictor decides which tokens the block takes; else it takes the first
	Threshold float64 // of the predictor's probability, above which a token is taken
	One       bool    // the gate is 1
	Auxiliary float64 // weight of the router's own loss
}

func (Depths) Name() string       { return "mod" }
func (Depths) Phase() model.Phase { return model.AroundBlocks }
func (Depths) Beyond() bool       { return true }

// Notes says where blocks took other tokens in training.
func (d Depths) Notes() []string {
	switch {
	case d.Predictor:
		return nil
	case d.Auxiliary == 0:
		return []string{"mod.route = topk chose tokens by all of a sequence: here a block takes those whose router's sigmoid is above 1/2, which mod.auxiliary = 0 has not taught who is first"}
	}
	return []string{"mod.route = topk chose tokens by all of a sequence: here a block takes those whose router's sigmoid is above 1/2, as mod.auxiliary taught it"}
}

// Routed is the Form of a block that takes some tokens only.
const Routed = "routed"

// Extend makes one part of every second block.
func (d Depths) Extend(c model.Config, chain []model.Description) []model.Description {
	return model.EachBlock(chain, func(b model.Description) model.Description {
		if b.Block%2 == 1 {
			makers := b.Makers
			b.Form, b.Makers = Routed, []model.Maker{{New: func() model.Part { return newRouted(c, d, b.Block, model.MakeParts(makers)) }}}
		}
		return b
	})
}

// routed is a block that works on some of the tokens, and lets the others pass. With the router's
// logit r = inp·w + b and the gate g = sigmoid(r),
//
//	out = (1-g)·inp + g·block(inp)  of the tokens that are taken
//	out = inp                       of the others
//
// The block's attention is among the tokens that are taken. The first tokens of a sequence are the
// Capacity·tokens with the largest r, of equal ones the earlier. The block takes them, unless a
// predictor decides. The predictor p = down(gelu(up(inp))) learns by binary cross-entropy which
// tokens are first, because that is not known at the time of a token. Its gradient
// stops at inp. It takes a token if sigmoid(p) > Threshold, so counts vary. The router learns by
// the gate. With Auxiliary it also learns by Auxiliary times the cross-entropy of sigmoid(r)
// against being first (the first of the two ways of Raposo et al. 2024, section 3.5).
//
// The device decides, and lists the tokens that are taken. The host knows the number of first
// tokens of every sequence beforehand. It waits for the number of tokens that a predictor takes.
//
// Departs: with a predictor it is the predictor that decides in training, too, so that counts vary.
// Raposo et al. train by the first Capacity·tokens. Their predictor decides only where tokens are
// sampled one by one.
//
// Departs: the gate is sigmoid(r), not r. So r = 0 is half of the block and not none of it, and a
// gate cannot turn the block's sign. Capacity 1 with an open gate is the dense model.
type routed struct {
	model.Basic
	Depths
	hidden   int
	router   model.Linear // (1, C)
	up, down model.Linear // the predictor: (C/4, C) and (1, C/4); zero without one
	block    *model.Layer // attention and MLP: parts, without memory of their own
	sizes    blockSizes
	forced   []int // tokens that are taken, by microbatch of all replicas (dynamic.replay); nil: the predictor decides
}

// blockSizes remembers Sizes of the block in a microbatch of room tokens.
type blockSizes struct {
	room        int
	dtype       tensor.DType
	saved, held int64
}

func newRouted(c model.Config, d Depths, block int, parts []model.Part) *routed {
	at, width := model.InBlock(block), max(1, c.Hidden/4)
	matrix := func(name string, rows, cols int) model.Linear {
		return model.Linear{
			W: at.Param(name+".weight", rows, cols, model.RoleDecayed, c.Deviation(block)),
			B: at.Param(name+".bias", rows, 1, model.RolePlain, 0),
		}
	}
	r := &routed{
		Depths: d, hidden: c.Hidden, router: matrix("router", 1, c.Hidden),
		block: model.Nested(parts),
	}
	if d.Predictor {
		r.up, r.down = matrix("predictor.up", width, c.Hidden), matrix("predictor.down", 1, width)
	}
	for _, p := range r.own() {
		p.File, p.Weight = "", at.Layer+"/depths."+p.Name
		for _, inner := range r.block.Params() {
			if inner.Name == p.Name {
				inner.Name = inner.Within
			}
		}
	}
	return r
}

// own returns the parameters that are not the block's.
func (r *routed) own() []*model.Param {
	list := []*model.Param{r.router.W, r.router.B}
	if r.Predictor {
		list = append(list, r.up.W, r.up.B, r.down.W, r.down.B)
	}
	return list
}

func (r *routed) Params() []*model.Param {
	list := r.own()
	return append(list, r.block.Params()...)
}

// Tuned returns the numbers of the block.
func (r *routed) Tuned() (list []*float64) {
	for _, p := range r.block.Parts {
		list = append(list, p.Tuned()...)
	}
	return list
}

func (r *routed) Traits() model.Traits {
	return model.TraitsOf(r.block.Parts).Or(model.Traits{Waits: r.Predictor, Once: true})
}

func (r *routed) NewWork(x *model.Exec, room model.Room) model.Work {
	return &inner{x: x, routed: r, block: r.block.NewWork(x, room), memory: room.OnDevice(x.BatchBytes()), host: room.OnHost(offsetsBytes(x))}
}

func (r *routed) Leaves() model.Width { return model.Width{Values: r.hidden} }

// room returns the most tokens that are taken of a microbatch.
func (r *routed) room(x *model.Exec) int {
	if r.guesses(x) {
		return x.N()
	}
	return x.B * kernel.First(r.Capacity, x.T)
}

// blockSizes returns the block's Sizes for the tokens that are taken.
func (r *routed) blockSizes(x *model.Exec) (saved, held int64) {
	room, d := r.room(x), x.Backend.DType()
	if s := &r.sizes; s.room != room || s.dtype != d {
		s.room, s.dtype = room, d
		sizes := r.block.SizesOf(x, room)
		s.saved, s.held = sizes.Kept, sizes.Held
	}
	return r.sizes.saved, r.sizes.held
}

// decision is which tokens are taken, and what passes need of it; of what has a value for
// each token that is taken there is room for the most.
type decision struct {
	dlogits, dguess tensor.Mem // gradients of logits and guess, of their losses
	taken           tensor.Mem // of each token whether it is
	rows, factors   tensor.Mem // of the tokens that are taken: where in the batch; g, and 1-g
	readings        tensor.Mem
}

func (r *routed) decision(x *model.Exec, c *model.Cutter) (d decision) {
	room, float := r.room(x), x.Backend.DType()
	d.dlogits = c.Rows(1, float)
	if r.Predictor {
		d.dguess = c.Rows(1, float)
	}
	d.taken, d.rows, d.factors = c.Rows(1, tensor.I32), c.Take(room, tensor.I32), c.Take(2*room, float.Wide())
	d.readings = c.Take(readingsOfRouting, tensor.F64)
	return d
}

// of returns a decision's operands of the tokens that are taken: g and 1-g.
func (d decision) of(x *model.Exec, tokens int) (rows, gate, keep tensor.Mem) {
	index, wide := int64(tokens)*tensor.I32.Size(), int64(tokens)*x.Backend.DType().Wide().Size()
	return d.rows.Span(0, index), d.factors.Span(0, wide), d.factors.Span(d.factors.Bytes/2, wide)
}

type routedSaved struct {
	logits, pre, active, guess, inp, block, out tensor.Mem
	decided                                     decision
}

func (r *routed) saved(x *model.Exec, c *model.Cutter) (s routedSaved) {
	d, width := x.Backend.DType(), r.up.Rows()
	s.logits = c.Rows(1, d)
	if r.Predictor {
		s.pre, s.active, s.guess = c.Rows(width, d), c.Rows(width, d), c.Rows(1, d)
	}
	s.decided = r.decision(x, c)
	block, _ := r.blockSizes(x)
	s.inp, s.block, s.out = c.Take(r.room(x)*r.hidden, d), c.Bytes(block, block), c.Rows(r.hidden, d)
	return s
}

// within returns the memory of the block.
func (s routedSaved) within() model.Saved { return model.Saved{Kept: s.block} }

type routedHeld struct{ dout, dinp, block tensor.Mem }

func (r *routed) held(x *model.Exec, c *model.Cutter) routedHeld {
	_, block := r.blockSizes(x)
	elements := r.room(x) * r.hidden
	return routedHeld{dout: c.Take(elements, x.Backend.DType()), dinp: c.Take(elements, x.Backend.DType()), block: c.Bytes(block, block)}
}

func (r *routed) Memory(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := r.saved(x, cs)
	r.held(x, ch)
	return s.out, cs.Off, ch.Off
}

func (r *routed) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	s, n := r.saved(x, x.Cut(b, saved)), b.Tokens
	r.router.Forward(x, n, s.logits, inp)
	if r.Predictor {
		r.up.ForwardGELU(x, n, s.active, s.pre, inp)
		r.down.Forward(x, n, s.guess, s.active)
	}
	if err := r.decide(x, b, s); err != nil {
		return err
	}
	x.Stream.Copy(s.out, inp)
	inside := b.Work.(*inner).inside
	if inside.Tokens == 0 {
		return r.block.Forward(x, inside, s.within(), tensor.Mem{})
	}
	rows, _, _ := s.decided.of(x, inside.Tokens)
	taken := r.taken(x, inside, s.inp)
	x.Backend.GatherRows(x.Stream, taken, inp, rows, tensor.Mem{}, inside.Tokens, r.hidden)
	if err := r.block.Forward(x, inside, s.within(), taken); err != nil {
		return err
	}
	rows, gate, keep := s.decided.of(x, inside.Queries)
	x.Backend.ScatterRows(x.Stream, s.out, inside.QueryRows(r.block.Output(x, inside, s.within())), rows, keep, gate, inside.Queries, r.hidden)
	return nil
}

// taken returns the rows of memory at capacity of the tokens that are there.
func (r *routed) taken(x *model.Exec, inside *model.Batch, m tensor.Mem) tensor.Mem {
	return m.Span(0, r.Leaves().Bytes(x, inside.Tokens))
}

// BackwardInput adds to the gradient of the logits what comes by the gate: with
// dy = g·dout of the block's output y, dr = g·(1-g)·Σ dout·(y - inp) = (1-g)·Σ dy·(y - inp).
func (r *routed) BackwardInput(x *model.Exec, b *model.Batch, saved, held, _, dout, din tensor.Mem) error {
	s, h, inside := r.saved(x, x.Cut(b, saved)), r.held(x, x.Cut(b, held)), b.Work.(*inner).inside
	rows, gate, keep := s.decided.of(x, inside.Tokens)
	dinp := tensor.Mem{}
	if inside.Tokens > 0 || r.block.Traits.Talks {
		dy, taken := r.taken(x, inside, h.dout), r.taken(x, inside, s.inp)
		if !din.IsZero() {
			dinp = r.taken(x, inside, h.dinp)
		}
		if inside.Tokens > 0 {
			x.Backend.GatherRows(x.Stream, dy, dout, rows, gate, inside.Tokens, r.hidden)
			x.Backend.GateGradient(x.Stream, s.decided.dlogits, dy, r.block.Output(x, inside, s.within()), taken, rows, keep, inside.Tokens, r.hidden)
		}
		if err := r.block.BackwardInput(x, inside, s.within(), h.block, taken, dy, dinp); err != nil {
			return err
		}
	}
	if din.IsZero() {
		return nil
	}
	passed := x.Scratch.Span(0, din.Bytes) // of what passes by, and goes through the block
	x.Stream.Copy(passed, dout)
	if inside.Tokens > 0 {
		x.Backend.ScatterRows(x.Stream, passed, dinp, rows, keep, tensor.Mem{}, inside.Tokens, r.hidden)
	}
	x.Backend.MatmulForwardAdd(x.Stream, din, s.decided.dlogits, r.router.W.W, tensor.Mem{}, passed, b.Tokens, 1, r.hidden)
	return nil
}

func (r *routed) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, inp, _ tensor.Mem) error {
	s, h, inside := r.saved(x, x.Cut(b, saved)), r.held(x, x.Cut(b, held)), b.Work.(*inner).inside
	r.router.BackwardWeight(x, b.Tokens, s.decided.dlogits, inp)
	if r.Predictor {
		dpre := x.Scratch.Span(0, s.pre.Bytes)
		r.down.BackwardGELU(x, b.Tokens, dpre, s.decided.dguess, s.pre)
		r.down.BackwardWeight(x, b.Tokens, s.decided.dguess, s.active)
		r.up.BackwardWeight(x, b.Tokens, dpre, inp)
	}
	return r.block.BackwardWeight(x, inside, s.within(), h.block, r.taken(x, inside, s.inp), r.taken(x, inside, h.dout))
}
