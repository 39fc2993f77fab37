package search

import (
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/model"
)

// recomputeKey begins what Shape says of what is computed twice.
const recomputeKey = " model.recompute="

// repeatedShares returns the share of every layer's forward that runs a second time. Of the
// attention of a whole block it is estimated: that of the multiplications of a token.
func repeatedShares(c config.Config) []float64 {
	chain, dense := model.FromConfig(c).Chain(), Dense(c).Layers
	shares := make([]float64, len(chain))
	for l, d := range chain {
		switch {
		case dense[l].Bytes.Recomputed == 0:
		case c.Model.Recompute == "attention" && d.Kind == model.Block:
			shares[l] = AttentionForward(c)
		default:
			shares[l] = 1
		}
	}
	return shares
}

// AttentionForward returns the share of a block's multiplications that its attention has: those
// of its matrices and T·C of its scores (4·C² + T·C of 12·C² + T·C in GPT-2).
func AttentionForward(c config.Config) float64 {
	hidden, sequence := float64(c.Model.Hidden), float64(c.Model.Sequence)
	attention, mlp := c.Matrices()
	return (attention/hidden + sequence) / ((attention+mlp)/hidden + sequence)
}

// Suit returns costs that hold for settings of a shape (see Shape) as they are for settings c
// that differ in model.recompute or optimizer.shard, and the Shape of c where they differ in no
// more. What is computed twice takes its share of the forward (see repeatedShares) before the
// backward for inputs. Bytes change where they are those of the dense model.
func Suit(t cost.Table, shape string, c config.Config) (cost.Table, string) {
	had := c
	had.Model.Recompute, had.Optimizer.Shard = "none", false
	if _, rest, is := strings.Cut(shape, recomputeKey); is {
		had.Model.Recompute, _, _ = strings.Cut(rest, " ")
	}
	if len(t.Layers) != c.Layers() || shape != "" && shape != Shape(had) {
		return t, shape
	}
	before, now := Dense(had).Layers, Dense(c).Layers
	was, is := repeatedShares(had), repeatedShares(c)
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		layer, b, n := &t.Layers[l], before[l].Bytes, now[l].Bytes
		if layer.BackwardInput > 0 {
			layer.BackwardInput = max(0, layer.BackwardInput+(is[l]-was[l])*layer.Forward)
		}
		if bytes := &layer.Bytes; bytes.Activations == b.Activations && bytes.Recomputed == b.Recomputed {
			bytes.Activations, bytes.Recomputed = n.Activations, n.Recomputed
		}
		if layer.Bytes.Optimizer == b.Optimizer {
			layer.Bytes.Optimizer = n.Optimizer
		}
	}
	if shape != "" {
		shape = Shape(c)
	}
	return t, shape
}
