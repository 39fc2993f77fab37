// Package moe is the mixture of experts: a block has several MLPs, and each token takes a few of
// them.
package moe

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kind/moe/place"
	"dynmo/src/model"
	"dynmo/src/model/llama"
	"dynmo/src/piece"
	"dynmo/src/tensor"
)

// Experts are gated MLPs in place of every block's one (Shazeer et al. 2017). Each token takes a
// few of them. The zero value has none.
type Experts struct {
	model.Modest
	Count, Top int     // experts of a block; those that a token goes to
	Balanced   bool    // assignments are balanced (S-BASE); else a loss balances them
	Deviation  float64 // that balanced assignments stretch logits to; 0: they stay as they are
	Rounds     int     // of balancing
	Auxiliary  float64 // weight of that loss
	Z          float64 // weight of the router's z-loss
	Capacity   float64 // times its fair share that an expert takes of a microbatch's assignments; 0: all
	Scale      float64 // of the weights of choices; 0: 1
	Squashed   bool    // the router is two matrices with tanh between, not one (Zhu et al. 2024)
	BlockRows  int     // rows of a block that spread experts work on at a time; 0: all rows of an expert, on the replica that has it
	Spare      int     // places of a replica for copies, where rows are cut into blocks
	Groups     int     // layers that the experts of a block are cut into (see expertGroup); 0: one with the rest of its second half
}

func (Experts) Name() string       { return "moe" }
func (Experts) Phase() model.Phase { return model.InsideBlocks }

// Extend puts experts in the place of every block's MLP: as one part, or where the block is
// cut into layers as groups of experts.
func (e Experts) Extend(c model.Config, chain []model.Description) []model.Description {
	return model.EachBlock(chain, func(d model.Description) model.Description {
		for i, p := range d.Makers {
			if p.Kind != model.MLP {
				continue
			}
			d.Makers[i].New = func() model.Part { return newExperts(c, e, d.Block) }
			for k := range e.Groups {
				form := "others"
				if k == 0 {
					form = "router"
				}
				d.Makers[i].Cut = append(d.Makers[i].Cut, model.Maker{
					Name: fmt.Sprintf("experts.%d", k), Kind: model.MLP, Form: form, New: func() model.Part { return newExpertGroup(c, e, d.Block, k) },
				})
			}
		}
		return d
	})
}

// Shared returns the experts of a block.
func (e Experts) Shared() int { return e.Count }

// Idle returns how many weights of experts a token does not meet.
func (e Experts) Idle(c model.Config) int64 {
	return 3 * int64(c.Blocks) * int64(max(0, e.Count-e.Top)) * int64(c.Hidden) * int64(c.Intermediate)
}

// Weights lists router and experts, as Mixtral's files name them (Jiang et al. 2024), in the
// place of every block's gated MLP.
func (e Experts) Weights(c model.Config, list []model.Weight) (all []model.Weight) {
	for _, w := range list {
		block, name, _ := strings.Cut(w.Name, "/")
		number, is := strings.CutPrefix(block, "block.")
		if !is || name != "gateup.weight" && name != "down.weight" {
			all = append(all, w)
			continue
		}
		if name == "down.weight" {
			continue
		}
		at, there := block+"/", "layers."+number+".block_sparse_moe."
		all = append(all, model.Weight{Name: at + "router.weight", HuggingFace: there + "gate.weight", Shape: []int64{int64(e.Count), int64(c.Hidden)}})
		if e.Squashed {
			all = append(all, model.Weight{Name: at + "router.outer.weight", HuggingFace: there + "gate.outer.weight", Shape: []int64{int64(e.Count), int64(e.Count)}})
		}
		for k := range e.Count {
			all = append(all, llama.GatedWeights(c, fmt.Sprintf("%sexpert.%d.", at, k), fmt.Sprintf("%sexperts.%d.", there, k), "w1.weight", "w3.weight", "w2.weight")...)
		}
	}
	return all
}

// Scratch is a row for each of those that experts work on in one product; where products add up
// exactly, as much as a matrix's sum, of words twice as long as elements on a CPU are.
func (e Experts) Scratch(c model.Config, tokens int) int {
	rows := e.on(c).rowsAtOnce(tokens) * c.Intermediate
	if count, _ := e.Pieces(c); count > 0 {
		rows = max(rows, 2*kernel.FixedWords(2*c.Intermediate*c.Hidden))
	}
	return rows
}

// rankMemory is what all blocks with experts on a rank share. They use it one after the other.
type rankMemory struct {
	outputs      tensor.Mem   // of spread experts: rows that they computed, until the rows are sent to the tokens' replicas
	rows, counts tensor.Mem   // on the host: where each expert's assignments begin; rows by replica and expert
	event        device.Event // see exchange
	sends, recvs []comm.Part  // of the next round; see addMessages
	dealer       place.Dealer // see deal
}

// Reserve returns a rankMemory.
func (e Experts) Reserve(x *model.Exec, c model.Config, room model.Room) any {
	m := &rankMemory{rows: room.OnHost(int64(e.Count+1) * tensor.I32.Size())}
	if c.Spread > 0 {
		m.outputs = room.OnDevice(int64(e.on(c).rows(x.N())*c.Hidden) * x.Backend.DType().Size())
		m.counts = room.OnHost(int64(1+c.Spread) * int64(e.Count) * tensor.I32.Size())
	}
	return m
}

func (e *experts) rankMemory(x *model.Exec) *rankMemory { return x.Reserved(e.Name()).(*rankMemory) }

// divided are the experts of a model, and how many replicas share them out.
type divided struct {
	Experts
	Spread int // 0: each replica has all
}

func (e Experts) on(c model.Config) divided { return divided{e, c.Spread} }

// whole returns the experts of a block that is not cut into groups.
func (e Experts) whole() Experts {
	e.Groups = 0
	return e
}

// experts is the second half of a block with a mixture of experts (Jiang et al. 2024):
//
//	gate, up = gateup_e(norm(inp))
//	out      = inp + Σ_e g_e·down_e(silu(gate)·up)  over the experts e that a token goes to
//
// with e and the weights g as the router has them (see Experts.route). Tokens
// are sorted by expert, so that each has one product on its rows; a token's sum is in the
// order of its choices. One expert of top 1 is a block with a gated MLP.
type experts struct {
	model.Basic
	divided
	hidden, inside int
	norm           model.Norm
	router         model.Linear // (Count, C)
	outer          model.Linear // (Count, Count) behind it, and tanh; absent unless Squashed
	lo             int          // the first expert of list in the block, but where they are spread
	list           []mlpOf      // by expert that is here
	on             piece.Map    // which of the replicas that experts are spread over hold which
	forced         []int        // tokens of each expert, by microbatch of all replicas (dynamic.replay); nil: the router decides
	keeps          bool         // a Work keeps what other replicas sent: a second forward sends nothing
}

// mlpOf is the matrices of an expert.
type mlpOf struct{ gateup, down model.Linear }

func newExperts(c model.Config, kind Experts, block int) *experts {
	e := &experts{
		divided: kind.whole().on(c), hidden: c.Hidden, inside: c.Intermediate,
		norm:  c.NewNorm(model.InBlock(block), "norm2"),
		keeps: c.Spread > 0 && c.Recompute != model.RecomputeNothing,
	}
	e.router, e.outer = kind.newRouter(c, block)
	e.hold(c, block)
	return e
}

// newRouter returns the matrices of the router of a block's experts.
func (e Experts) newRouter(c model.Config, block int) (router, outer model.Linear) {
	at, d := model.InBlock(block), c.Deviation(block)
	param := func(name string, cols int) *model.Param {
		p := at.Param(name, e.Count, cols, model.RoleDecayed, d)
		p.Within = "experts." + name
		return p
	}
	router.W = param("router.weight", c.Hidden)
	if e.Squashed {
		outer.W = param("router.outer.weight", e.Count)
	}
	return router, outer
}

func (m mlpOf) Params() []*model.Param { return slices.Concat(m.gateup.Params(), m.down.Params()) }

func (e *experts) Params() []*model.Param {
	list := slices.Concat(e.norm.Params(), e.router.Params(), e.outer.Params())
	for _, m := range e.list {
		list = append(list, m.Params()...)
	}
	return list
}

func (e *experts) Leaves() model.Width { return model.Width{Values: e.hidden} }

// Counts is the name of what a block with experts leaves for the host: the tokens
// that are there; the assignments that are dropped; the router's own losses, summed over
// the tokens, in thousandths: Count·Σ f·P and lse²; and the tokens of each expert. The
// losses are no part of the one that is reported.
const Counts = "experts"

// CountsFrom is where in these values the tokens of the first expert are.
const countsFrom = 4

func (e *experts) Readings() []model.Reading {
	return []model.Reading{{Name: Counts, Values: countsFrom + e.Count}}
}

func (e *experts) Reading(x *model.Exec, b *model.Batch, saved tensor.Mem, _ int) tensor.Mem {
	return e.saved(x, x.Cut(b, saved)).decided.readings
}

// assignments is what passes need of where tokens go: by place the token and its weight, by
// token and choice the place and the weight, by expert where its places begin.
type assignments struct {
	tokens, factors, places, weights, ends tensor.Mem
	readings                               tensor.Mem
}

// assignable returns the largest number of assignments that have a place, of the given number of
// tokens.
func (e divided) assignable(tokens int) int {
	if e.Groups > 0 {
		return e.rows(tokens)
	}
	return tokens * e.Top
}

// placed returns how many experts assignments have a place at: those of a group, else all
// of a block, wherever they are.
func (e Experts) placed() int { return e.Count / max(1, e.Groups) }

func (e *experts) assignments(x *model.Exec, c *model.Cutter) (a assignments) {
	wide := x.Backend.DType().Wide()
	a.tokens, a.factors = c.Rows(e.Top, tensor.I32), c.Rows(e.Top, wide)
	a.places, a.weights = c.Rows(e.Top, tensor.I32), c.Rows(e.Top, wide)
	a.ends, a.readings = c.Take(e.placed()+1, tensor.I32), c.Take(countsFrom+e.Count, tensor.F64)
	return a
}

// firstRows returns tokens and factors of the assignments with the first places.
func (a assignments) firstRows(x *model.Exec, assigned int) (tokens, factors tensor.Mem) {
	return a.tokens.Span(0, int64(assigned)*tensor.I32.Size()), a.factors.Span(0, int64(assigned)*x.Backend.DType().Wide().Size())
}

// expertsSaved is the saved memory of a block's experts. inp, gateup and active have the rows that the
// experts of this rank work on. outputs has, for each assignment by its place, the output of its
// expert. BackwardInput overwrites outputs with the gradients of the assignments' inputs.
type expertsSaved struct {
	mean, rstd, normed, logits, squashed, inp, gateup, active, outputs, out tensor.Mem
	decided                                                                 assignments
	chosen, router                                                          tensor.Mem // of RouteTokens
}

func (e *experts) saved(x *model.Exec, c *model.Cutter) (s expertsSaved) {
	d, all := x.Backend.DType(), c.Tokens
	c.Tokens = c.Queries
	s.mean, s.rstd = e.norm.Statistics(x, c)
	s.normed = c.Rows(e.hidden, d)
	e.cutLogits(x, c, &s)
	e.cutAssigned(x, c, &s)
	c.Tokens = all
	s.out = c.Rows(e.hidden, d)
	return s
}

// cutLogits takes what is of the router.
func (e *experts) cutLogits(x *model.Exec, c *model.Cutter, s *expertsSaved) {
	s.logits = c.Rows(e.Count, x.Backend.DType())
	s.chosen, s.router = c.Rows(e.Top, tensor.I32), c.Rows(2*e.Count, tensor.F64)
	if e.Squashed {
		s.squashed = c.Rows(e.Count, x.Backend.DType())
	}
}

// cutAssigned takes what is of assignments, and of rows that the experts here work on.
func (e *experts) cutAssigned(x *model.Exec, c *model.Cutter, s *expertsSaved) {
	d, rows := x.Backend.DType(), e.rows(c.Capacity)
	s.decided = e.assignments(x, c)
	s.gateup, s.active = c.Take(2*rows*e.inside, d), c.Take(rows*e.inside, d)
	if !e.keeps {
		inp, outputs := e.exchanged(x, c.Capacity)
		s.inp, s.outputs = c.Bytes(inp, inp), c.Bytes(outputs, outputs)
	}
}

// with returns the memory with what a Work keeps of it.
func (s expertsSaved) with(d *dispatch) expertsSaved {
	if !d.inp.IsZero() {
		s.inp, s.outputs = d.inp, d.outputs
	}
	return s
}

// exchanged returns the bytes of inp and outputs of expertsSaved for the given number of tokens.
func (e *experts) exchanged(x *model.Exec, tokens int) (inp, outputs int64) {
	row := int64(e.hidden) * x.Backend.DType().Size()
	return int64(e.rows(tokens)) * row, int64(e.assignable(tokens)) * row
}

// expertsHeld: dlogits are the gradients of what the router's first matrix makes, dscores of
// what the outer one does.
type expertsHeld struct{ dnormed, dlogits, dscores, doutputs, dgateup, dweights tensor.Mem }

func (e *experts) held(x *model.Exec, c *model.Cutter) (h expertsHeld) {
	c.Tokens = c.Queries
	e.cutGradients(x, c, &h)
	e.cutWorked(x, c, &h)
	return h
}

// cutGradients takes what is of the norm and the router.
func (e *experts) cutGradients(x *model.Exec, c *model.Cutter, h *expertsHeld) {
	d := x.Backend.DType()
	h.dnormed, h.dlogits = c.Rows(e.hidden, d), c.Rows(e.Count, d)
	if e.Squashed {
		h.dscores = c.Rows(e.Count, d)
	}
}

// cutWorked takes what is of the weights of choices, and of rows that the experts here work
// on.
func (e *experts) cutWorked(x *model.Exec, c *model.Cutter, h *expertsHeld) {
	d, rows := x.Backend.DType(), e.rows(c.Capacity)
	h.dweights = c.Rows(e.Top, d.Wide())
	h.doutputs, h.dgateup = c.Take(rows*e.hidden, d), c.Take(2*rows*e.inside, d)
}

func (e *experts) Memory(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	cs, ch := x.Cut(b, saved), x.Cut(b, held)
	s := e.saved(x, cs)
	e.held(x, ch)
	return s.out, cs.Off, ch.Off
}

// Texts returns the experts of a model that continues a text: every token goes to its most probable
// ones, and none is dropped.
func (e Experts) Texts() model.Extension {
	e.Capacity, e.Groups, e.BlockRows, e.Spare = 0, 0, 0, 0
	return e
}

// Notes says where a text decides otherwise than training did.
func (e Experts) Notes() (list []string) {
	if e.Balanced {
		list = append(list, "moe.balance = s-base chose experts by all tokens of a microbatch: here each token goes to those that are most probable for it")
	}
	if e.Capacity > 0 {
		list = append(list, "moe.capacity dropped what experts had no room for: here they have")
	}
	return list
}
