package dynamic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/random"
)

// Workload is what a kind of dynamism makes of the costs of a run that nobody
// has trained. Its fields are what the kind assumes. Equal values give equal
// costs, whatever is made up besides.
type Workload interface {
	// Costs returns what the chain costs from a step on in which the model may
	// change: c.Start, c.Start + c.Every, …
	Costs(c *Chain, step int) Costs
}

// NamedWorkload is a kind that --dynamic knows.
type NamedWorkload struct {
	Name   string
	Every  int  // steps between changes of the model in the paper (sections 3.1, 3.5 and 4.1); 0: a tenth of the run
	Routed bool // microbatches cost differently: their number must be known
	Of     func(config.Config) Workload
}

// Workloads are the kinds, whose assumptions are the settings'.
var Workloads = []NamedWorkload{
	{"prune", 0, false, func(c config.Config) Workload { return PruneWorkload{NewPrune(c)} }},
	{"freeze", 50, false, func(c config.Config) Workload { return FreezeWorkload{c.Simulate.Frozen, c.Simulate.Thaws} }},
	{"moe", 1, true, func(c config.Config) Workload { return recordedExperts(c.Simulate) }},
	{"attention", 1, false, func(c config.Config) Workload {
		return AttentionWorkload{c.Simulate.Sparsest, c.Simulate.Densest, c.Simulate.Noise}
	}},
	{"exit", 100, true, func(c config.Config) Workload {
		return ExitWorkload{c.Simulate.ExitFrom, c.Simulate.ExitShare, c.Simulate.ExitNoise}
	}},
	{"mod", 1, true, func(c config.Config) Workload { return DepthWorkload{c.Simulate.Tokens, c.Simulate.TokensNoise} }},
}

// Streams of random numbers: a kind's draws depend on no other's.
const (
	streamFreeze = iota
	_
	streamRouting
	streamDensity
	streamBuckets
	streamExit
	streamDepth
)

// MadeUp is a run that nobody has trained. A zero Every stands for its default.
type MadeUp struct {
	Steps        int
	Seed         uint64
	Start        int     // first step in which the model may differ from the dense one
	Every        int     // steps between changes; 0: NamedWorkload's
	Microbatches int     // of a step; routed kinds need it
	Attention    float64 // share of a block's seconds that its attention over the scores takes
}

// Chain is the dense chain of a made-up run.
type Chain struct {
	MadeUp
	layers []cost.Layer
	blocks []block // by layer
	count  int     // blocks in the chain
}

// block is the part of a block that a layer is.
type block struct {
	index     int     // of the block in the chain; -1: the layer is embedding or head
	last      bool    // the block ends with this layer
	attention float64 // share of the layer's seconds in attention over the scores
	mlp       float64 // share in the MLP's products; the rest is those of attention
}

// Costs are a model's at a step: its layers, and what its microbatches make of
// their seconds (see cost.Phase; nil: 1).
type Costs struct {
	Layers []cost.Layer
	Scale  [][]float64
}

// Equal reports whether two models cost the same.
func (c Costs) Equal(d Costs) bool {
	return slices.Equal(c.Layers, d.Layers) && slices.EqualFunc(c.Scale, d.Scale, slices.Equal[[]float64])
}

// NewChain returns the chain of a run, whose layers are known by their names:
// block.3, or block.3.attention and block.3.mlp, or block.3.experts.0 and so on in place
// of that. The others are embedding and head.
func NewChain(layers []cost.Layer, run MadeUp) (*Chain, error) {
	if !(run.Attention > 0 && run.Attention < 1) {
		return nil, fmt.Errorf("share of attention: %v, wanted between 0 and 1", run.Attention)
	}
	c := &Chain{MadeUp: run, layers: layers}
	a := run.Attention
	matrices := (1 - a) / 3 // attention's own: 4·C² of a block's 12·C² parameters
	for i, l := range layers {
		b := block{index: -1}
		if rest, ok := strings.CutPrefix(l.Name, "block."); ok {
			number, part, _ := strings.Cut(rest, ".")
			_, group := strings.CutPrefix(part, "experts.")
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || n >= len(layers) {
				return nil, fmt.Errorf("layer %q: wanted the number of its block, as in block.3, of %d layers", l.Name, len(layers))
			}
			b.index, b.last = n, i == len(layers)-1 || !strings.HasPrefix(layers[i+1].Name, "block."+number+".")
			switch {
			case part == "":
				b.attention, b.mlp = a, 1-a-matrices
			case part == "attention":
				b.attention = a / (a + matrices)
			case part == "mlp", group:
				b.mlp = 1
			default:
				return nil, fmt.Errorf("layer %q: wanted block.%d, block.%[2]d.attention, block.%[2]d.mlp or block.%[2]d.experts.0", l.Name, n)
			}
			c.count = max(c.count, n+1)
		}
		c.blocks = append(c.blocks, b)
	}
	if c.count == 0 {
		return nil, fmt.Errorf("layers: none of %d is called block.0, block.1, …", len(layers))
	}
	return c, nil
}

// random returns the numbers of a stream.
func (c *Chain) random(stream uint64, key ...uint64) *rand.Rand {
	return random.Keyed(append([]uint64{c.Seed, stream}, key...)...)
}

// change returns the dense model with the layers of its blocks changed.
func (c *Chain) change(how func(l *cost.Layer, b block)) Costs {
	layers := slices.Clone(c.layers)
	for i, b := range c.blocks {
		if b.index >= 0 {
			how(&layers[i], b)
		}
	}
	return Costs{Layers: layers}
}

// scaled returns the dense model, the seconds of the layers of its blocks times
// a factor for each microbatch. row fills in the factors of a layer.
func (c *Chain) scaled(row func(factors []float64, b block)) Costs {
	scale := make([][]float64, len(c.blocks))
	for i, b := range c.blocks {
		scale[i] = slices.Repeat([]float64{1}, c.Microbatches)
		if b.index >= 0 {
			row(scale[i], b)
		}
	}
	return Costs{c.layers, scale}
}

// slower multiplies the seconds of a layer.
func slower(l *cost.Layer, factor float64) {
	l.Forward *= factor
	l.BackwardInput *= factor
	l.BackwardWeight *= factor
}

// share multiplies bytes or numbers of parameters.
func share(n *int64, factor float64) { *n = int64(math.Round(float64(*n) * factor)) }
