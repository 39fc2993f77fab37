// Package attention is sparse attention as a kind of dynamism: queries see the keys of their own hash bucket.
package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Buckets is attention within Count hash buckets (Pagliardini et al. 2023). A query sees only the
// keys of its own bucket at or before its position. The bucket of a query or key x of a head is the
// place of the largest of
//
//	(x·r_0, …, x·r_{Count/2-1}, -x·r_0, …, -x·r_{Count/2-1})
//
// The r_i are normal vectors of length 1, different for each head. They are drawn anew in every
// forward of a microbatch, by seed, step, block and microbatch. So placement and a resumed run
// change no draw. The work depends on the directions of a layer's queries, and differs by layer,
// step and microbatch.
//
// With SharedKeys the key of a token is its query over the query's length, and lies in the query's
// bucket. Every token then sees itself. Without it, queries and keys have matrices of their own,
// and a query that sees no key has output 0.
//
// Departs: a token sees itself, as in the kernels that the authors time
// (timeperf-hash-and-qk-sparse.ipynb, q >= k). The kernels that train their language models leave
// it out (hsparse_attn.py, line 104, q > k): the first token of a bucket then has output 0. The
// authors draw in every forward; here validation draws the same in every step.
type Buckets struct {
	model.Modest
	Count      int
	SharedKeys bool
}

func (Buckets) Name() string       { return "attention" }
func (Buckets) Phase() model.Phase { return model.InsideBlocks }

// Lacks says which tensors of other programs the model does not have, and what to do; "" for none.
func (k Buckets) Lacks() string {
	if k.SharedKeys {
		return `attention.keys = "shared": no other program makes keys of queries, want the model of a run with attention.keys = "own"`
	}
	return ""
}

// Beyond reports whether queries do not see all keys, or keys are made of queries.
func (k Buckets) Beyond() bool { return k.Count > 1 || k.SharedKeys }

// Scratch is that of shared keys.
func (k Buckets) Scratch(c model.Config, tokens int) int {
	if k.SharedKeys {
		return model.SharedScratch(c, tokens)
	}
	return 0
}

// Shares reports whether keys are made of queries.
func (k Buckets) Shares() bool { return k.SharedKeys }

// Weights leaves out queries and keys where keys are shared: no other program has such a matrix.
func (k Buckets) Weights(_ model.Config, list []model.Weight) []model.Weight {
	return slices.DeleteFunc(list, func(w model.Weight) bool { return k.SharedKeys && strings.Contains(w.Name, "/qkv.") })
}

// Extend gives every block an attention that looks for keys in buckets.
func (k Buckets) Extend(c model.Config, chain []model.Description) []model.Description {
	return model.EachBlock(chain, func(d model.Description) model.Description {
		for i, p := range d.Makers {
			if p.Kind == model.Attention {
				d.Makers[i].New = func() model.Part {
					return model.NewAttention(c, d.Block, &buckets{Buckets: k, seed: c.Seed, block: d.Block, hidden: c.Hidden, heads: c.Heads})
				}
			}
		}
		return d
	})
}

// buckets are those of one block.
type buckets struct {
	Buckets
	seed                 uint64
	block, hidden, heads int
	forced               []int // tokens by microbatch and bucket; nil: the hash decides
}

// Projections returns the r_i of a text: those of the first microbatch of a validation.
func (a *buckets) Projections() []float32 {
	list := make([]float32, a.projections())
	normal := random.Keyed(a.seed, uint64(a.block+1), streamValidation, 0, 0)
	drawVectors(normal, len(list), make([]float64, a.hidden/a.heads), func(at int, r float64) { list[at] = float32(r) })
	return list
}

// projections returns how many numbers the r_i of all heads have.
func (a *buckets) projections() int { return a.hidden * (a.Count / 2) }

// Memory is order and starts, and the reading Pairs.
func (a *buckets) Memory(x *model.Exec, c model.Cutter, heads int) (model.Searched, model.Cutter) {
	return model.Searched{c.Rows(2*heads, tensor.I32), c.Take(x.B*heads*2*(a.Count+1), tensor.I32), c.Take(2, tensor.F64)}, c
}

// pairCounts is the name of a reading of two values: pairs of a query and a key that have a
// score, and those that dense attention scores.
const pairCounts = "pairs"

func (a *buckets) Readings() []model.Reading           { return []model.Reading{{Name: pairCounts, Values: 2}} }
func (a *buckets) Reading(m model.Searched) tensor.Mem { return m[2] }

func (a *buckets) of(b *model.Batch, m model.Searched, heads int) kernel.Buckets {
	starts := int64(b.Sequences*heads*2*(a.Count+1)) * tensor.I32.Size()
	return kernel.Buckets{Count: a.Count, Shared: a.SharedKeys, Order: m[0], Starts: m[1].Span(0, starts)}
}

func (a *buckets) Forward(x *model.Exec, b *model.Batch, m model.Searched, attended, lse, qkv tensor.Mem, hidden, heads int) {
	h := a.of(b, m, heads)
	projections := tensor.Mem{}
	if w, is := b.Work.(*work); is {
		projections = w.memory
	}
	x.Backend.AttentionHash(x.Stream, h, m[2], qkv, b.Offsets, projections, b.Sequences, b.Longest, b.Tokens, hidden, heads)
	a.force(x, b, h, m[2], heads)
	x.Backend.SparseAttentionForward(x.Stream, attended, lse, qkv, b.Offsets, h, b.Sequences, b.Longest, b.Tokens, hidden, heads)
}

func (a *buckets) Backward(x *model.Exec, b *model.Batch, m model.Searched, dqkv, dattended, qkv, attended, lse tensor.Mem, hidden, heads int) {
	x.Backend.SparseAttentionBackward(x.Stream, dqkv, dattended, qkv, attended, lse, b.Offsets, a.of(b, m, heads), b.Sequences, b.Longest, b.Tokens, hidden, heads)
}

// Streams of random numbers, apart from those of weights, which go on with a name's hash.
const streamProjections, streamValidation = 1, 2

// work is the Work of an attention in buckets: the projections of a microbatch.
type work struct {
	*buckets
	x            *model.Exec
	origin       *model.Batch
	entered      model.Batch
	memory, host tensor.Mem   // wide (heads, Count/2, channels of a head)
	copied       device.Event // host is on the device; nil before the first time
	pcg          rand.PCG
	normal       *rand.Rand // draws by pcg
	vector       []float64
}

// NewWork returns memory of projections; nil where there are none.
func (a *buckets) NewWork(x *model.Exec, room model.Room) model.Work {
	bytes := int64(a.projections()) * x.Backend.DType().Wide().Size()
	if bytes == 0 {
		return nil
	}
	w := &work{buckets: a, x: x, memory: room.OnDevice(bytes), host: room.OnHost(bytes), vector: make([]float64, a.hidden/a.heads)}
	w.normal = rand.New(&w.pcg)
	return w
}

// Enter draws the projections of the microbatch that the Exec says. An error of the device
// shows at the end of the step.
func (w *work) Enter(b *model.Batch) *model.Batch {
	w.origin, w.entered = b, *b
	w.entered.Work = w
	if w.copied != nil {
		_ = w.copied.Wait()
	}
	w.draw()
	w.x.Stream.Copy(w.memory, w.host)
	w.copied = w.x.Stream.Record(w.copied)
	return &w.entered
}

// draw sets host to vectors of length 1 in even directions.
func (w *work) draw() {
	stream, step := uint64(streamProjections), w.x.Step
	if w.x.Validates {
		stream, step = streamValidation, 0
	}
	random.Seed(&w.pcg, w.seed, uint64(w.block+1), stream, uint64(step), uint64(w.x.Microbatch))
	drawVectors(w.normal, w.projections(), w.vector, func(at int, r float64) {
		if w.x.Backend.DType().Wide() == tensor.F64 {
			tensor.Of[float64](w.host)[at] = r
		} else {
			tensor.Of[float32](w.host)[at] = float32(r)
		}
	})
}

// drawVectors calls set with count numbers: vectors of length 1 in even directions, one after the
// other. vector is memory of one.
func drawVectors(normal *rand.Rand, count int, vector []float64, set func(at int, r float64)) {
	for first := 0; first < count; first += len(vector) {
		square := 0.0
		for i := range vector {
			vector[i] = normal.NormFloat64()
			square += vector[i] * vector[i]
		}
		for i, r := range vector {
			set(first+i, r/math.Sqrt(square))
		}
	}
}

// Skip does nothing.
func (w *work) Skip() error { return nil }

// Leaves returns the batch that entered.
func (w *work) Leaves() *model.Batch { return w.origin }

// Worked returns the tokens that are computed.
func (w *work) Worked() int { return w.entered.Computes() }

// Expected returns 1.
func (w *work) Expected() float64 { return 1 }

// Repeats reports whether a forward repeats the last: projections lie at one place, forced buckets
// do not.
func (w *work) Repeats() bool { return w.forced == nil }
