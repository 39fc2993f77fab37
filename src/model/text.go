package model

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/device"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// Text is one sequence that forwards continue, a few tokens at a time, in float32 and host memory.
// There is no backward. It keeps the keys and values of all tokens so far. Every forward decides on
// each token alone, because later tokens are not known.
type Text struct {
	Room    int // most tokens
	Threads int // that share attention
	tokens  int // so far, before the microbatch
	blocks  map[int]*pastKeys
}

// Continue says how many tokens of the text come before the next microbatch; 0: the text begins anew.
// Only an Exec with a Text has it.
func (x *Exec) Continue(tokens int) {
	if x.Text.tokens = tokens; tokens == 0 {
		x.Text.blocks = make(map[int]*pastKeys)
	}
	for i := range x.N() {
		tensor.Of[int32](x.Full.Positions)[i] = int32(tokens + i)
	}
}

// Texts returns the model as it continues texts: one replica has all of it, its layers are whole, and
// kinds decide on each token alone.
func (c Config) Texts() Config {
	c = c.Whole()
	c.HeadShards, c.HalfGrain, c.Recompute = 0, false, RecomputeNothing
	for _, e := range c.Kinds.list() {
		if of, ok := e.(interface{ Texts() Extension }); ok {
			c = c.With(of.Texts())
		}
	}
	return c
}

// ForwardStage returns all layers of a model for forwards alone. Their weights are zero. They have no
// gradients, masters and moments.
func ForwardStage(c Config, d device.Device, t tensor.DType) (*Stage, error) {
	return newStage(c, c.All(), func(id int) (l *Layer, err error) {
		l = outline(c, c.Chain()[id], header{Layer: id}, t)
		l.device = d
		if l.w, err = d.Alloc(int64(l.copies) * t.Size()); err != nil {
			return nil, fmt.Errorf("layer %d (%s): %w", id, l.Name, err)
		}
		l.point()
		return l, nil
	})
}

// Logits returns the logits of a text's last token, after a forward of this token alone. It panics for
// other layers than a head and an exit at which the token left.
func (l *Layer) Logits(x *Exec, b *Batch, s Saved) []float32 {
	last := len(l.Parts) - 1
	part := l.Parts[last].(interface {
		Logits(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem
	})
	return tensor.Of[float32](part.Logits(x, b.OfPart(last), l.savedOf(last, x, b, s)))
}

// pastKeys has the keys and values of the tokens that a block has computed so far: (heads with keys,
// Room, head size). So the keys of a head are adjacent, in the order of positions.
type pastKeys struct {
	keys, values []float32
	tokens       int
	projections  []float32 // see Search; empty: a query sees all keys
	buckets      []int32   // of the keys, (heads, Room), if there are projections
}

// past returns the keys and values of a block's earlier tokens.
func (t *Text) past(a *attention) *pastKeys {
	k := t.blocks[a.block]
	if k == nil {
		size := t.Room * a.keyed * (a.hidden / a.heads)
		k = &pastKeys{keys: make([]float32, size), values: make([]float32, size)}
		if a.search != nil {
			k.projections, k.buckets = a.search.Projections(), make([]int32, t.Room*a.heads)
		}
		t.blocks[a.block] = k
	}
	return k
}

// attendPast sets attended (n, C) of the computed tokens of a batch, from qkv. It adds the keys and
// values of all n tokens to those of earlier tokens. A token attends to the keys up to its own
// position. Rows of the batch may be in another order than positions.
func (a *attention) attendPast(x *Exec, b *Batch, attended, qkv tensor.Mem) {
	k, positions := x.Text.past(a), tensor.Of[int32](b.Positions)
	ascending, places := slices.Sorted(slices.Values(positions)), make([]int, b.Tokens)
	for i, position := range positions {
		place, _ := slices.BinarySearch(ascending, position)
		places[i] = k.tokens + place
	}
	var group errgroup.Group
	group.SetLimit(x.Text.Threads)
	for head := range a.keyed {
		group.Go(func() error {
			a.attendHeads(k, x.Text.Room, head, b.Queries, places, tensor.Of[float32](attended), tensor.Of[float32](qkv))
			return nil
		})
	}
	_ = group.Wait() // no error
	k.tokens += b.Tokens
}

// attendHeads is attendPast of the heads that share the keys of head `keyed`. places are those of the
// batch's tokens among the keys. A query that sees no key of its bucket has output 0.
func (a *attention) attendHeads(k *pastKeys, room, keyed, queries int, places []int, out, qkv []float32) {
	size, group, width := a.hidden/a.heads, a.heads/a.keyed, a.width()
	keys, values := k.keys[keyed*room*size:], k.values[keyed*room*size:]
	for i, place := range places {
		row := qkv[i*width:][:width]
		copy(keys[place*size:][:size], row[(a.heads+keyed)*size:])
		copy(values[place*size:], row[(a.heads+a.keyed+keyed)*size:][:size])
		if len(k.projections) > 0 {
			of := a.heads + keyed
			if a.shares { // a key is in the bucket of its token's query
				of = keyed
			}
			k.buckets[keyed*room+place] = a.bucket(k, row[of*size:][:size], keyed)
		}
	}
	scores := make([]float32, k.tokens+len(places))
	for i, place := range places[:queries] {
		p := scores[:place+1]
		matrix := func(data []float32) blas32.General {
			return blas32.General{Rows: len(p), Cols: size, Stride: size, Data: data[:len(p)*size]}
		}
		for head := keyed * group; head < (keyed+1)*group; head++ {
			query := qkv[i*width+head*size:][:size]
			blas32.Gemv(blas.NoTrans, float32(1/math.Sqrt(float64(size))), matrix(keys), vector(query), 0, vector(p))
			if len(k.projections) > 0 {
				own := a.bucket(k, query, head)
				for j, bucket := range k.buckets[head*room:][:len(p)] {
					if bucket != own {
						p[j] = float32(math.Inf(-1))
					}
				}
			}
			softmax(p)
			blas32.Gemv(blas.Trans, 1, matrix(values), vector(p), 0, vector(out[i*a.hidden+head*size:][:size]))
		}
	}
}

// bucket returns the bucket of x, a query or key of a head.
func (a *attention) bucket(k *pastKeys, x []float32, head int) int32 {
	each := len(k.projections) / a.heads
	return int32(ref.BucketOf(x, k.projections[head*each:][:each]))
}

func vector(x []float32) blas32.Vector { return blas32.Vector{N: len(x), Inc: 1, Data: x} }

// softmax replaces scores by their softmax. It is 0 if all scores are -Inf.
func softmax(scores []float32) {
	largest := slices.Max(scores)
	if math.IsInf(float64(largest), -1) {
		clear(scores)
		return
	}
	sum := 0.0
	for i, v := range scores {
		e := math.Exp(float64(v - largest))
		scores[i] = float32(e)
		sum += e
	}
	blas32.Scal(float32(1/sum), vector(scores))
}
