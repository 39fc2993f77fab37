package attention

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// plainBuckets sets the attention of a plain model to that of Pagliardini et al. (2023), with
// the projections of a chain's microbatch: hashformer.py, lines 61 to 68, and the hash of
// hsparse_attn.py, lines 428 to 440, under the mask of timeperf-hash-and-qk-sparse.ipynb,
// q >= k (epfml/dynamic-sparse-flash-attention, 266f36a).
func plainBuckets(ch *modeltest.Chain, k Buckets) func(p *modeltest.Plain) {
	return func(p *modeltest.Plain) {
		heads, size := p.Config.Heads, p.Config.Hidden/p.Config.Heads
		p.Attend = func(at string, x [][]modeltest.Scalar) [][]modeltest.Scalar {
			var block int
			_, _ = fmt.Sscanf(at, "block.%d/", &block)
			projections := tensor.Of[float64](ch.Work[block+1].(*work).host)
			out := make([][]modeltest.Scalar, len(x))
			queries, keys, values := make([][]modeltest.Scalar, len(x)), make([][]modeltest.Scalar, len(x)), make([][]modeltest.Scalar, len(x))
			for head := range heads {
				of := func(y []modeltest.Scalar, part int) []modeltest.Scalar {
					return y[part*p.Config.Hidden+head*size:][:size]
				}
				for t := range x {
					if k.SharedKeys {
						qv := p.Product(at+"qv.weight", x[t])
						queries[t], values[t] = p.Turned(of(qv, 0), t), of(qv, 1)
						square := p.Dot(queries[t], queries[t])
						root := p.Map(square, 1/math.Sqrt(square.X), -0.5/(square.X*math.Sqrt(square.X)))
						keys[t] = nil
						for _, q := range queries[t] {
							keys[t] = append(keys[t], p.Mul(q, root))
						}
						continue
					}
					qkv := p.Product(at+"qkv.weight", x[t])
					queries[t], keys[t], values[t] = p.Turned(of(qkv, 0), t), p.Turned(of(qkv, 1), t), of(qkv, 2)
				}
				hash := func(x []modeltest.Scalar) int {
					var all []float64
					own := projections[head*size*k.Count/2:][:size*k.Count/2]
					for r := range slices.Chunk(own, size) {
						product := 0.0
						for i := range x {
							product += x[i].X * r[i]
						}
						all = append(all, product)
					}
					for _, product := range slices.Clone(all) {
						all = append(all, -product)
					}
					return slices.Index(all, slices.Max(all))
				}
				for t := range x {
					var scores []modeltest.Scalar
					var seen []int
					for s := range t + 1 {
						if hash(keys[s]) == hash(queries[t]) {
							score, scale := p.Dot(queries[t], keys[s]), 1/math.Sqrt(float64(size))
							scores, seen = append(scores, p.Map(score, score.X*scale, scale)), append(seen, s)
						}
					}
					weights := p.Softmax(scores)
					for c := range size {
						var column []modeltest.Scalar
						for _, s := range seen {
							column = append(column, values[s][c])
						}
						out[t] = append(out[t], p.Dot(weights, column))
					}
				}
			}
			return out
		}
	}
}

// TestBucketsAreTheAuthors: over 20 steps of gradient descent, each with projections of its
// own, losses and gradients are those of the authors' definition, number by number. Every
// vector of projections has length 1, and no two forwards have the same.
func TestBucketsAreTheAuthors(t *testing.T) {
	for _, k := range []Buckets{{Count: 4, SharedKeys: true}, {Count: 2, SharedKeys: true}, {Count: 4}} {
		c := modeltest.SmallLlama
		c.Heads, c.KeyValueHeads, c.Sequence = 2, 2, 8
		ch := modeltest.New(t, c.With(k), tensor.F64)
		modeltest.Enlarge(ch.S)
		var drawn [][]float64
		for step := range 20 {
			ch.X.Step = step
			ch.Gradients()
			for block := range c.Blocks {
				projections := slices.Clone(tensor.Of[float64](ch.Work[block+1].(*work).host))
				for r := range slices.Chunk(projections, c.Hidden/c.Heads) {
					if square := r[0]*r[0] + r[1]*r[1] + r[2]*r[2] + r[3]*r[3]; math.Abs(square-1) > 1e-12 {
						t.Fatalf("a projection of length² %v", square)
					}
				}
				if slices.ContainsFunc(drawn, func(other []float64) bool { return slices.Equal(other, projections) }) {
					t.Fatalf("%+v, step %d: projections were drawn before", k, step)
				}
				drawn = append(drawn, projections)
			}
			p, logits := modeltest.PlainOf(ch, plainBuckets(ch, k))
			loss := p.Loss(logits, ch.Targets)
			if got := ch.Loss(); math.Abs(got-loss.X) > 1e-10 {
				t.Fatalf("%+v, step %d: loss %v, plainly %v", k, step, got, loss.X)
			}
			modeltest.EqualGradients(t, ch, p, p.Derivatives(loss))
			descend(ch.S)
		}
	}
}

// descend moves all weights against their gradients.
func descend(s *model.Stage) {
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			w, g := tensor.Of[float64](p.W), tensor.Of[float64](p.G)
			for i := range w {
				w[i] -= 0.05 * g[i]
			}
		}
	}
}

// TestDraws: projections are those of seed, step, block and microbatch; validation has others,
// in every step the same.
func TestDraws(t *testing.T) {
	c := modeltest.Small.With(Buckets{Count: 4, SharedKeys: true})
	first := func(seed uint64, step, microbatch, layer int, validates bool) float64 {
		c.Seed = seed
		ch := modeltest.New(t, c, tensor.F64)
		ch.X.Step, ch.X.Microbatch, ch.X.Validates = step, microbatch, validates
		ch.Loss()
		return tensor.Of[float64](ch.Work[layer].(*work).host)[0]
	}
	base := first(1, 2, 3, 1, false)
	if first(1, 2, 3, 1, false) != base {
		t.Error("equal keys draw differently")
	}
	validation := first(1, 2, 3, 1, true)
	if validation != first(1, 5, 3, 1, true) {
		t.Error("validation differs by step")
	}
	for i, other := range []float64{first(2, 2, 3, 1, false), first(1, 3, 3, 1, false), first(1, 2, 4, 1, false), first(1, 2, 3, 2, false), validation} {
		if other == base {
			t.Errorf("case %d draws the same", i)
		}
	}
}
