package study

import (
	"math"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/plan/search"
)

// finer makes up the costs of a chain that is cut finer, by model.grain and
// model.head_shards of next, from those of the chain of c. Pieces of a layer take
// its seconds in proportion to the multiplications of a token (see search.AttentionForward),
// and equal shares of a head; its bytes and
// parameters are divided as those of the dense chain are.
func finer(t cost.Table, c, next config.Config) cost.Table {
	old, pieces := search.Dense(c).Layers, search.Dense(next).Layers
	attention := search.AttentionForward(c)
	shares := []float64{attention, 1 - attention}
	out := t
	out.Layers, out.Scale = nil, nil
	for l, layer := range t.Layers {
		parts := []float64{1}
		switch heads := len(old) - c.Model.HeadShards; {
		case l >= heads:
			parts = equal(next.Model.HeadShards / c.Model.HeadShards)
		case pieces[len(out.Layers)].Name != old[l].Name: // a block that halves take the place of
			parts = shares
		}
		for _, share := range parts {
			out.Layers = append(out.Layers, piece(layer, old[l], pieces[len(out.Layers)], share))
			if t.Scale != nil {
				out.Scale = append(out.Scale, t.Scale[l])
			}
		}
	}
	return out
}

// equal returns n equal shares of 1.
func equal(n int) []float64 {
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1 / float64(n)
	}
	return shares
}

// piece returns a piece of a layer, from what the layer and the piece are in dense
// chains.
func piece(layer, dense, part cost.Layer, share float64) cost.Layer {
	times := func(n, whole, piece int64) int64 {
		if whole == 0 {
			return piece
		}
		return int64(math.Round(float64(n) * float64(piece) / float64(whole)))
	}
	part.Forward, part.BackwardInput, part.BackwardWeight = share*layer.Forward, share*layer.BackwardInput, share*layer.BackwardWeight
	part.NonZeros = times(layer.NonZeros, dense.NonZeros, part.NonZeros)
	part.Output = times(layer.Output, dense.Output, part.Output)
	b, d, p := layer.Bytes, dense.Bytes, &part.Bytes
	p.Parameters = times(b.Parameters, d.Parameters, p.Parameters)
	p.Gradients, p.Own = times(b.Gradients, d.Gradients, p.Gradients), times(b.Own, d.Own, p.Own)
	p.Optimizer = times(b.Optimizer, d.Optimizer, p.Optimizer)
	p.Workspace = times(b.Workspace, d.Workspace, p.Workspace)
	p.Activations = times(b.Activations, d.Activations, p.Activations)
	p.Held = times(b.Held, d.Held, p.Held)
	p.Recomputed = times(b.Recomputed, d.Recomputed, p.Recomputed)
	return part
}
