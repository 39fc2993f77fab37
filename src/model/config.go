// Package model is the transformer as a chain of layers. A stage owns some of them. A layer turns
// its input into its output in three separate steps: forward, backward for inputs, backward for
// weights. The caller gives memory for activations. Between calls a layer keeps only its state:
// weights, gradients, the optimizer's moments, and the state that a kind of dynamism registers.
//
// A family defines the chain of a Config: layers built from parts. A layer is the unit that is
// measured and migrated. Its description and its parts say its kind, its block, the data that it
// reads, and its output.
//
// Passes enqueue work and do not wait for it. The one exception: the host needs a number of rows
// that depends on data, because launches, memory or messages depend on that number. The parts of a
// kind say where they wait.
package model

import (
	"slices"
	"strings"

	"dynmo/src/config"
)

// Config is the shape of the model.
type Config struct {
	Family                                 string // "" is the first that is registered
	Blocks, Hidden, Heads, Sequence, Vocab int

	HeadShards  int  // slices of the vocabulary that the head is cut into; 0 and 1 leave it whole
	Tied        bool // the head projects with the embedding's weights
	HalfGrain   bool // attention and MLP of a block are layers of their own
	DepthScaled bool // initial deviations shrink with depth (Zhang et al. 2019)
	Seed        uint64

	KeyValueHeads int     // heads that have keys and values; 0: as many as Heads
	Intermediate  int     // channels inside a gated MLP; 0: the MLP is GPT-2's
	NormEps       float64 // of RMSNorm; 0: norms are LayerNorm, and what is linear has biases
	Rope          Rope    // of rotary positions; without a base positions have a table

	Recompute Recompute // which parts of blocks run forward again

	Kinds   Extensions // of the chain, by kinds of dynamism
	Spread  int        // replicas of a stage that share out what each has of its own; 0: each has all
	Shards  int        // replicas of a stage that share out masters and moments of every layer; 0: each has all
	Replica int        // whose share layers have, or Fullest
	Pieces  string     // which of the Spread replicas hold which pieces of layers, as layout.Layout has it
}

// Fullest as Config.Replica is one that owns a piece in each of its places (see Config.Pieces).
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

// RegisterShaper adds what FromConfig does for a kind of dynamism. It is called before any
// model is made.
func RegisterShaper(shaper func(config.Config, *Config)) { shapers = append(shapers, shaper) }

// Beyond names the kinds of dynamism by which the model is another one than its family's, as
// settings do, with + between them; "" if there are none.
func (c Config) Beyond() string {
	var names []string
	for _, e := range c.Others() {
		names = append(names, e.Name())
	}
	return strings.Join(names, "+")
}

// Others returns these kinds.
func (c Config) Others() []Extension {
	return slices.DeleteFunc(slices.Clone(c.Kinds.list()), func(e Extension) bool { return !e.Beyond() })
}

// Base returns the model as its family and the other kinds have it.
func (c Config) Base() Config {
	kinds := slices.DeleteFunc(slices.Clone(c.Kinds.list()), Extension.Beyond)
	c.Kinds = Extensions{}
	copy(c.Kinds[:], kinds)
	return c
}

// PrivateWeights lists the tensors that no file of another program has, in chain order.
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

// Tie is a matrix that a layer borrows, or rows of it: it computes with a copy,
// which its owner updates.
type Tie struct {
	Weight          string // of both (see Param.Weight)
	Owner, Borrower int    // chain positions
	First, Rows     int    // the rows of the owner's matrix that are borrowed
	Cols            int
}

// Ties returns what layers of the chain borrow, in chain order of the borrowers.
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

// Parameters returns how many weights the model has, whatever of it this replica has. What
// layers borrow counts with its owner.
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

// Active returns how many of the weights a token meets.
func (c Config) Active() int64 { return c.Parameters() - c.idle() }

// idle returns how many weights a token does not meet.
func (c Config) idle() (n int64) {
	for _, e := range c.Kinds.list() {
		n += e.Idle(c)
	}
	return n
}

// Flops returns the floating-point operations that train the model on one token of a whole
// sequence. The token neither leaves early nor skips a block. Forward, the matrices of blocks and
// head take 2 for each weight that the token meets, and causal attention takes 2·T·C in each block.
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
