package dynamic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

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
	Name string
	Making
}

// Workloads returns the kinds, whose assumptions are the settings'.
func Workloads() (list []NamedWorkload) {
	for _, r := range registrations {
		list = append(list, NamedWorkload{r.Settings.Name, r.Workload})
	}
	return list
}

// MadeUp is a run that nobody has trained. A zero Every stands for its default.
type MadeUp struct {
	Steps        int
	Seed         uint64
	Start        int     // first step in which the model may differ from the dense one
	Every        int     // steps between changes; 0: those of Making
	Microbatches int     // of a step; routed kinds need it
	Attention    float64 // share of a block's seconds that its attention over the scores takes
}

// Chain is the dense chain of a made-up run.
type Chain struct {
	MadeUp
	Layers []cost.Layer
	Blocks []Block // by layer
	Count  int     // blocks in the chain
}

// Block is the part of a block that a layer is.
type Block struct {
	Index     int     // of the block in the chain; -1: the layer is embedding or head
	Last      bool    // the block ends with this layer
	Attention float64 // share of the layer's seconds in attention over the scores
	MLP       float64 // share in the MLP's products; the rest is those of attention
}

// Costs are a model's at a step: its layers, and what its microbatches make of
// their seconds (see cost.Phase; nil: 1).
type Costs struct {
	Layers []cost.Layer
	Scale  [][]float64
	Routed *cost.Routed // what Scale follows from; nil: it is the same wherever pieces of layers are
}

// Equal reports whether two models cost the same.
func (c Costs) Equal(d Costs) bool {
	return slices.Equal(c.Layers, d.Layers) && slices.EqualFunc(c.Scale, d.Scale, slices.Equal[[]float64]) && c.Routed.Equal(d.Routed)
}

// NewChain returns the chain of a run, whose layers are known by their names:
// block.3, or block.3.attention and block.3.mlp, or block.3.experts.0 and so on in place
// of that. The others are embedding and head.
func NewChain(layers []cost.Layer, run MadeUp) (*Chain, error) {
	if !(run.Attention > 0 && run.Attention < 1) {
		return nil, fmt.Errorf("share of attention: %v, wanted between 0 and 1", run.Attention)
	}
	c := &Chain{MadeUp: run, Layers: layers}
	a := run.Attention
	matrices := (1 - a) / 3 // attention's own: 4·C² of a block's 12·C² parameters
	for i, l := range layers {
		b := Block{Index: -1}
		if rest, ok := strings.CutPrefix(l.Name, "block."); ok {
			number, part, _ := strings.Cut(rest, ".")
			_, group := strings.CutPrefix(part, "experts.")
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || n >= len(layers) {
				return nil, fmt.Errorf("layer %q: wanted the number of its block, as in block.3, of %d layers", l.Name, len(layers))
			}
			b.Index, b.Last = n, i == len(layers)-1 || !strings.HasPrefix(layers[i+1].Name, "block."+number+".")
			switch {
			case part == "":
				b.Attention, b.MLP = a, 1-a-matrices
			case part == "attention":
				b.Attention = a / (a + matrices)
			case part == "mlp", group:
				b.MLP = 1
			default:
				return nil, fmt.Errorf("layer %q: wanted block.%d, block.%[2]d.attention, block.%[2]d.mlp or block.%[2]d.experts.0", l.Name, n)
			}
			c.Count = max(c.Count, n+1)
		}
		c.Blocks = append(c.Blocks, b)
	}
	if c.Count == 0 {
		return nil, fmt.Errorf("layers: none of %d is called block.0, block.1, …", len(layers))
	}
	return c, nil
}

// Random returns the numbers of a stream. A kind has streams of its own: its draws depend on
// no other's.
func (c *Chain) Random(stream uint64, key ...uint64) *rand.Rand {
	return random.Keyed(append([]uint64{c.Seed, stream}, key...)...)
}

// Change returns the dense model with the layers of its blocks changed.
func (c *Chain) Change(how func(l *cost.Layer, b Block)) Costs {
	layers := slices.Clone(c.Layers)
	for i, b := range c.Blocks {
		if b.Index >= 0 {
			how(&layers[i], b)
		}
	}
	return Costs{Layers: layers}
}

// Scaled returns the dense model, the seconds of the layers of its blocks times
// a factor for each microbatch. row fills in the factors of a layer.
func (c *Chain) Scaled(row func(factors []float64, b Block)) Costs {
	scale := make([][]float64, len(c.Blocks))
	for i, b := range c.Blocks {
		scale[i] = slices.Repeat([]float64{1}, c.Microbatches)
		if b.Index >= 0 {
			row(scale[i], b)
		}
	}
	return Costs{Layers: c.Layers, Scale: scale}
}

// Slower multiplies the seconds of a layer.
func Slower(l *cost.Layer, factor float64) {
	l.Forward *= factor
	l.BackwardInput *= factor
	l.BackwardWeight *= factor
}

// Share multiplies bytes or numbers of parameters.
func Share(n *int64, factor float64) { *n = int64(math.Round(float64(*n) * factor)) }
