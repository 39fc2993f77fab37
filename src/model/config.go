// Package model is the transformer as a chain of layers: embedding, blocks, head. A Stage is the
// layers of the chain that one rank owns.
//
// In: a Config (the shape of the model), an Exec (device, kernels, stream, sizes), memory for
// activations, and the tokens and targets of a microbatch. Out: activations, gradients and updated
// weights. Other packages also get a layer's costs, its state to move or save, and its readings.
//
// Invariants: a microbatch goes through a layer in three passes, always in this order: forward,
// backward for inputs, backward for weights. All three get the same memory. Between two steps
// Layer.Sections are the whole state of a layer. A part may hold a Work for each microbatch besides.
//
// Passes enqueue work and do not wait for it. The one exception: the host needs a number of rows
// that depends on data, because launches, memory or messages depend on that number. The parts of a
// kind say where they wait.
//
// Words: a family (src/model/family) defines the chain. A kind of dynamism (src/kind) is a way in which
// the model changes while it trains, such as pruning; some kinds change the chain. A layer is the
// unit that is measured and moved, and is built from parts. A replica's share is what one replica
// holds of a layer whose parameters the replicas of a stage divide among them. A piece, in
// Config.Pieces and Param.Piece, is a group of such parameters that stays together, such as one MLP
// of a mixture.
//
// Others rely on the following, so do not change it alone. The order of parameters in slabs and the
// names of sections are in checkpoints and in messages. Param.Name seeds the initial weights. Width,
// Sizes and Traits size the pipeline's buffers and the planner's memory. The blocks of SquaredNorm
// decide the bits of the gradient norm. Free to change: how a part computes, the scratch memory, and
// the list of families and kinds.
package model

import (
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/piece"
)

// Config is the shape of the model.
type Config struct {
	Family                                 string // "" is the first that is registered
	Blocks, Hidden, Heads, Sequence, Vocab int

	HeadShards  int  // slices of the vocabulary that the head is cut into; 0 and 1 leave it whole
	Tied        bool // the head projects with the embedding's weights
	HalfGrain   bool // the attention and the MLP of each block are two layers, not one (model.grain = "half")
	DepthScaled bool // initial deviations shrink with depth (Zhang et al. 2019)
	Seed        uint64

	KeyValueHeads int     // heads that have keys and values; 0: all Heads
	Intermediate  int     // channels inside a gated MLP; 0: the MLP is GPT-2's
	NormEps       float64 // of RMSNorm; 0: norms are LayerNorm, and matrices have biases
	Rope          Rope    // of rotary positions; zero: a table of learned positions is added to the embedding

	Recompute Recompute // which parts of blocks run their forward a second time, before the backward

	Kinds   Extensions       // what kinds of dynamism change in the chain
	Spread  int              // number of replicas that divide the pieces of layers among them; 0: every replica has all pieces
	Shards  int              // number of replicas that divide masters and moments of every layer; 0: every replica has all
	Replica int              // number of the replica whose share (by Spread and by Shards) the layers hold, or Fullest
	Pieces  piece.Assignment // which replica holds which piece
}

// Fullest is a value of Config.Replica: a made-up replica that holds as many pieces as a replica has
// room for. Memory is planned for this replica.
const Fullest = -1

// FromConfig returns the model's shape from the settings.
func FromConfig(c config.Config) Config {
	shape := Config{
		Blocks: c.Model.Blocks, Hidden: c.Model.Hidden, Heads: c.Model.Heads,
		Sequence: c.Model.Sequence, Vocab: c.Model.Vocab, Tied: c.Model.Tied, HeadShards: c.Model.HeadShards,
		Recompute: recomputes[c.Model.Recompute], HalfGrain: c.Model.Grain == "half", DepthScaled: c.Model.Init == "depth-scaled", Seed: c.Run.Seed,
	}
	if c.Model.Family != families[0].Name {
		shape.Family = c.Model.Family
	}
	if f := familyOf(shape.Family); f.Shape != nil {
		f.Shape(c, &shape)
	}
	if c.ReplicasDiffer() {
		shape.Spread = c.Parallel.Replicas
	}
	if c.Sharded() {
		shape.Shards = c.Parallel.Replicas
	}
	for _, shaper := range shapers {
		shaper(c, &shape)
	}
	return shape
}

// shapers set the fields of a Config that belong to kinds of dynamism.
var shapers []func(config.Config, *Config)

// RegisterShaper adds a function that FromConfig calls to set the fields of a kind of dynamism.
// Call RegisterShaper before any model is made, in an init function.
func RegisterShaper(shaper func(config.Config, *Config)) { shapers = append(shapers, shaper) }

// Beyond names the kinds of dynamism whose layers no other program knows, joined by "+", as in the
// settings; "" if there are none.
func (c Config) Beyond() string {
	var names []string
	for _, e := range c.BeyondKinds() {
		names = append(names, e.Name())
	}
	return strings.Join(names, "+")
}

// BeyondKinds returns the kinds that Beyond names.
func (c Config) BeyondKinds() []Extension {
	return slices.DeleteFunc(slices.Clone(c.Kinds.list()), func(e Extension) bool { return !e.Beyond() })
}

// Base returns the model without the kinds that Beyond names.
func (c Config) Base() Config {
	kinds := slices.DeleteFunc(slices.Clone(c.Kinds.list()), Extension.Beyond)
	c.Kinds = Extensions{}
	copy(c.Kinds[:], kinds)
	return c
}

// PrivateWeights lists the tensors that files of other programs do not have, in chain order.
func (c Config) PrivateWeights() (list []Weight) {
	for _, d := range c.Chain() {
		for _, p := range d.Params() {
			if p.File == "" {
				list = append(list, Weight{Name: p.Weight, Shape: p.Shape()})
			}
		}
	}
	return list
}

// Keyed returns how many heads have keys and values.
func (c Config) Keyed() int {
	if c.KeyValueHeads > 0 {
		return c.KeyValueHeads
	}
	return c.Heads
}

// Chain describes the layers of the model, first to last.
func (c Config) Chain() []Description {
	chain := familyOf(c.Family).Chain(c)
	kinds := c.Kinds.list()
	first := slices.IndexFunc(kinds, func(e Extension) bool { return e.Phase() == CutLayers })
	if first < 0 {
		first = len(kinds)
	}
	for _, e := range kinds[:first] {
		chain = e.Extend(c, chain)
	}
	chain = cutBlocks(c.HalfGrain, chain)
	for _, e := range kinds[first:] {
		chain = e.Extend(c, chain)
	}
	return chain
}

// Layers returns the length of the chain.
func (c Config) Layers() int { return len(c.Chain()) }

// Selects reports whether a layer before a chain position selects tokens.
func (c Config) Selects(before int) bool {
	return slices.ContainsFunc(c.Chain()[:before], func(d Description) bool { return d.Traits().Selects })
}

// Names returns the name of every layer.
func (c Config) Names() []string {
	var names []string
	for _, d := range c.Chain() {
		names = append(names, d.Name)
	}
	return names
}

// All returns the chain positions of all layers.
func (c Config) All() []int {
	ids := make([]int, c.Layers())
	for id := range ids {
		ids[id] = id
	}
	return ids
}

// Tie is a matrix, or rows of a matrix, that the borrower layer computes with and the owner layer
// updates. The borrower holds a copy of the weights.
type Tie struct {
	Weight          string // name of the matrix in both layers (see Param.Weight)
	Owner, Borrower int    // chain positions
	First, Rows     int    // the rows of the owner's matrix that are borrowed
	Cols            int
}

// Ties returns the matrices that layers of the chain borrow, in chain order of the borrowers.
func (c Config) Ties() []Tie {
	var ties []Tie
	owners := make(map[string]int) // by weight
	for id, d := range c.Chain() {
		for _, p := range d.Params() {
			if p.role != RoleBorrowed {
				owners[p.Weight] = id
				continue
			}
			owner, ok := owners[p.Weight]
			if !ok {
				panic("model: a layer borrows a matrix that no layer before it owns")
			}
			ties = append(ties, Tie{p.Weight, owner, id, p.First, p.Rows, p.Cols})
		}
	}
	return ties
}

// Owners returns the chain positions of the layers that own a weight, or slices of it in
// their order, by its name (see Param.Weight).
func (c Config) Owners() map[string][]int {
	owners := make(map[string][]int)
	for id, d := range c.Chain() {
		for _, p := range d.Params() {
			if p.role != RoleBorrowed {
				owners[p.Weight] = append(owners[p.Weight], id)
			}
		}
	}
	return owners
}

// Losses returns the chain positions of the layers that yield a loss, once for
// each loss.
func (c Config) Losses() []int {
	var list []int
	for id, d := range c.Chain() {
		for _, p := range d.parts() {
			for _, r := range p.Readings() {
				if r.Name == Loss {
					list = append(list, id)
				}
			}
		}
	}
	return list
}

// Parameters returns the number of weights of the whole model, not of this replica's share. A
// borrowed matrix counts once, with its owner.
func (c Config) Parameters() int64 {
	n := int64(0)
	for _, d := range c.Whole().Chain() {
		for _, p := range d.Params() {
			if !p.Borrowed() {
				n += int64(p.Rows) * int64(p.Cols)
			}
		}
	}
	return n
}

// Active returns the number of weights that are used to compute one token.
func (c Config) Active() int64 { return c.Parameters() - c.idle() }

// idle returns the number of weights that are not used to compute one token.
func (c Config) idle() (n int64) {
	for _, e := range c.Kinds.list() {
		n += e.Idle(c)
	}
	return n
}

// Flops returns the floating-point operations that train the model on one token of a whole
// sequence. The token neither leaves early nor skips a block. Forward, the matrices of blocks and
// head take 2 for each weight that the token uses, and causal attention takes 2·T·C in each block.
// Backward takes twice as many. Norms and activations, and the optimizer, are left out: they are
// small.
func (c Config) Flops() float64 {
	weights := -float64(c.idle())
	for _, d := range c.Whole().Chain() {
		if d.Kind == Embedding || d.Kind == Exit {
			continue
		}
		for _, p := range d.Params() {
			if p.Cols > 1 {
				weights += float64(p.Rows) * float64(p.Cols)
			}
		}
	}
	return 6*weights + 6*float64(c.Blocks)*float64(c.Sequence)*float64(c.Hidden)
}
