package model

import "slices"

// Extension is what a kind of dynamism changes in a model: its layers and parts, and what these
// need. A model has one extension for each of its kinds. Values must be comparable with ==, because
// two Configs are equal if their extensions are.
type Extension interface {
	// Name returns the kind's name in the settings.
	Name() string
	// Phase says when the kind extends the chain.
	Phase() Phase
	// Extend returns the chain with the kind's layers and parts.
	Extend(c Config, chain []Description) []Description
	// Beyond reports whether files of other programs cannot describe the kind's layers.
	Beyond() bool
	// Propagates reports whether a batch may contain keys-only tokens (see Batch.Queries).
	Propagates() bool
	// Learns reports whether layers learn from the last layer (see Learner).
	Learns() bool
	// Idle returns how many weights of the model are not used to compute one token.
	Idle(c Config) int64
	// Shared returns the number of equal groups of parameters (MLPs of a mixture) that replicas can
	// divide among them; 0: there are none, and each replica has all.
	Shared() int
	// Pieces returns the number of pieces of a block, and the most pieces that one replica has
	// memory for. A piece lies on one replica or on several. 0: the model has no pieces, and
	// Config.Pieces must be empty.
	Pieces(c Config) (count, places int)
	// Holders returns the replicas that hold each piece of a block, the piece's owner first. It
	// does so even if a replica has no room for its pieces. It returns an error if Config.Pieces is
	// wrong.
	Holders(c Config, block int) ([][]int, error)
	// Weights returns the tensors that files of other programs have. list is those of the family
	// without the kind.
	Weights(c Config, list []Weight) []Weight
	// Scratch returns the elements of shared scratch memory that a pass needs for a microbatch of
	// the given number of tokens.
	Scratch(c Config, tokens int) int
	// HeadWeight returns a factor of the gradient of the last layer's loss, 1 if the last layer has
	// the only loss. The factors of several kinds are multiplied.
	HeadWeight(c Config) float64
	// Reserve takes memory from room and returns what the kind's parts on a rank have in common
	// (see Exec.Reserved); nil: nothing.
	Reserve(x *Exec, c Config, room Room) any
}

// Phase orders the extensions of a model; those of one phase are ordered by name.
type Phase int

const (
	InsideBlocks  Phase = iota // replaces parts of blocks
	AroundBlocks               // makes one part of a block
	BetweenBlocks              // adds layers between blocks
	CutLayers                  // changes layers, after blocks are cut into halves or not (see Config.HalfGrain)
)

// Modest has the defaults of most Extension methods, for kinds to embed. Bools are false, counts and
// bytes are 0, HeadWeight is 1, Holders and Reserve return nil, and Weights returns its list.
type Modest struct{}

func (Modest) Beyond() bool                             { return false }
func (Modest) Propagates() bool                         { return false }
func (Modest) Learns() bool                             { return false }
func (Modest) Idle(Config) int64                        { return 0 }
func (Modest) Shared() int                              { return 0 }
func (Modest) Pieces(Config) (count, places int)        { return 0, 0 }
func (Modest) Holders(Config, int) ([][]int, error)     { return nil, nil }
func (Modest) Weights(_ Config, list []Weight) []Weight { return list }
func (Modest) Scratch(Config, int) int                  { return 0 }
func (Modest) HeadWeight(Config) float64                { return 1 }
func (Modest) Reserve(*Exec, Config, Room) any          { return nil }

// mostExtensions is the most kinds that a model has. Config.With panics beyond it.
const mostExtensions = 8

// Extensions are those of a model, in the order in which they extend the chain, followed by nil.
type Extensions [mostExtensions]Extension

// list returns those that are there.
func (e Extensions) list() []Extension {
	n := slices.Index(e[:], nil)
	if n < 0 {
		n = len(e)
	}
	return e[:n]
}

// With returns the model with an extension, which replaces one of the same name. It panics if the
// model has more than eight.
func (c Config) With(e Extension) Config {
	list := slices.DeleteFunc(slices.Clone(c.Kinds.list()), func(other Extension) bool { return other.Name() == e.Name() })
	if len(list) == mostExtensions {
		panic("model: more than mostExtensions kinds")
	}
	list = append(list, e)
	slices.SortFunc(list, func(a, b Extension) int {
		if a.Phase() != b.Phase() {
			return int(a.Phase() - b.Phase())
		}
		if a.Name() < b.Name() {
			return -1
		}
		return 1
	})
	c.Kinds = Extensions{}
	copy(c.Kinds[:], list)
	return c
}

// KindOf returns the model's extension of a type; the zero value if there is none.
func KindOf[T Extension](c Config) (e T) {
	for _, kind := range c.Kinds.list() {
		if is, ok := kind.(T); ok {
			return is
		}
	}
	return e
}

// Shared returns the number of equal groups of parameters that replicas can divide among them (see
// Extension.Shared); 0: none.
func (c Config) Shared() int {
	for _, e := range c.Kinds.list() {
		if n := e.Shared(); n > 0 {
			return n
		}
	}
	return 0
}

// Propagates reports whether a batch may contain keys-only tokens (see Batch.Queries).
func (c Config) Propagates() bool { return slices.ContainsFunc(c.Kinds.list(), Extension.Propagates) }

// Learns reports whether layers learn from the last layer (see Learner).
func (c Config) Learns() bool { return slices.ContainsFunc(c.Kinds.list(), Extension.Learns) }

// Maker makes one part of a layer. A block has several makers. Where blocks are cut (see
// Config.HalfGrain) every maker with a name becomes a layer.
type Maker struct {
	Name string // added to the block's name: "mlp" makes layer block.3.mlp; empty: the part stays with the maker before
	Kind Kind
	Form string // see Description.Form
	New  func() Part
	Cut  []Maker // replaces this maker by several, each a layer; a block with a Cut is always cut; nil: no replacement
}

// cutBlocks returns the chain with the blocks cut into layers, as the grain says.
func cutBlocks(half bool, chain []Description) (cut []Description) {
	for _, d := range chain {
		if d.Kind != Block || len(d.Makers) < 2 || !half && !slices.ContainsFunc(d.Makers, func(p Maker) bool { return p.Cut != nil }) {
			cut = append(cut, d)
			continue
		}
		for _, p := range d.Makers {
			if p.Name == "" {
				last := &cut[len(cut)-1]
				last.Makers = append(slices.Clip(last.Makers), p)
				continue
			}
			makers := []Maker{p}
			if p.Cut != nil {
				makers = p.Cut
			}
			for _, maker := range makers {
				cut = append(cut, Description{Name: d.Name + "." + maker.Name, Kind: maker.Kind, Block: d.Block, Form: maker.Form, Makers: []Maker{maker}})
			}
		}
	}
	return cut
}

// EachBlock returns the chain with every block changed.
func EachBlock(chain []Description, change func(d Description) Description) []Description {
	chain = slices.Clone(chain)
	for i, d := range chain {
		if d.Kind == Block {
			d.Makers = slices.Clone(d.Makers)
			chain[i] = change(d)
		}
	}
	return chain
}
