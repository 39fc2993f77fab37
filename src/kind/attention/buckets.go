// Package attention is sparse attention as a kind of dynamism: queries see the keys of their own hash bucket.
package attention

import (
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Buckets is attention within hash buckets (Pagliardini et al. 2023), so many of them: the
// queries and keys of every head are hashed by random projections, drawn by seed and block
// and the same in every step, and a query sees the keys of its own bucket. So work depends
// on how a layer's queries and keys lie, and differs by layer and step.
//
// Departs: the projections have signs for normal numbers (Achlioptas 2003), which makes
// them a few words that every kernel draws again.
type Buckets struct {
	model.Modest
	Count int
}

func (Buckets) Name() string       { return "attention" }
func (Buckets) Phase() model.Phase { return model.InsideBlocks }

// Beyond reports whether queries do not see all keys.
func (k Buckets) Beyond() bool { return k.Count > 1 }

// Extend gives every block an attention that looks for keys in buckets.
func (k Buckets) Extend(c model.Config, chain []model.Description) []model.Description {
	return model.EachBlock(chain, func(d model.Description) model.Description {
		for i, p := range d.Makers {
			if p.Kind == model.Attention {
				key := random.Keyed(c.Seed, uint64(d.Block+1), streamProjections).Uint64()
				d.Makers[i].New = func() model.Part { return model.NewAttention(c, d.Block, &buckets{k.Count, key}) }
			}
		}
		return d
	})
}

// buckets are those of one block.
type buckets struct {
	count int
	key   uint64 // of the projections
}

// streamProjections keeps the key apart from those of weights, which go on with a name's hash.
const streamProjections = 1

// Memory is order and starts, and the reading Pairs.
func (a *buckets) Memory(x *model.Exec, c model.Cutter, heads int) (model.Searched, model.Cutter) {
	return model.Searched{c.Rows(2*heads, tensor.I32), c.Take(x.B*heads*2*(a.count+1), tensor.I32), c.Take(2, tensor.F64)}, c
}

// pairCounts is the name of a reading of two values: pairs of a query and a key that have a
// score, and those that dense attention scores.
const pairCounts = "pairs"

func (a *buckets) Readings() []model.Reading           { return []model.Reading{{Name: pairCounts, Values: 2}} }
func (a *buckets) Reading(m model.Searched) tensor.Mem { return m[2] }

func (a *buckets) of(b *model.Batch, m model.Searched, heads int) kernel.Buckets {
	starts := int64(b.Sequences*heads*2*(a.count+1)) * tensor.I32.Size()
	return kernel.Buckets{Count: a.count, Order: m[0], Starts: m[1].Span(0, starts)}
}

func (a *buckets) Forward(x *model.Exec, b *model.Batch, m model.Searched, attended, lse, qkv tensor.Mem, hidden, heads int) {
	h := a.of(b, m, heads)
	x.Backend.AttentionHash(x.Stream, h, m[2], qkv, b.Offsets, a.key, b.Sequences, b.Longest, b.Tokens, hidden, heads)
	x.Backend.SparseAttentionForward(x.Stream, attended, lse, qkv, b.Offsets, h, b.Sequences, b.Longest, b.Tokens, hidden, heads)
}

func (a *buckets) Backward(x *model.Exec, b *model.Batch, m model.Searched, dqkv, dattended, qkv, attended, lse tensor.Mem, hidden, heads int) {
	x.Backend.SparseAttentionBackward(x.Stream, dqkv, dattended, qkv, attended, lse, b.Offsets, a.of(b, m, heads), b.Sequences, b.Longest, b.Tokens, hidden, heads)
}
