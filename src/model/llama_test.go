package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/tensor"
)

// smallLlama is a LLaMA of which every kind of layer and parameter is a part.
var smallLlama = Config{
	Family: "llama", Blocks: 2, Hidden: 8, Heads: 4, KeyValueHeads: 2, Intermediate: 5, NormEps: 1e-5, Rope: Rope{Base: 100},
	Sequence: 5, Vocab: 11, Seed: 7,
}

// TestLlamaIsThePlainModel: logits, loss and gradients are those of the model written
// number by number, whatever the key-value heads, the scaling of positions and the tie.
func TestLlamaIsThePlainModel(t *testing.T) {
	llama3 := Rope{Base: 500, Scaling: RopeLlama3, Factor: 8, Low: 1, High: 4, Original: 40}
	for name, change := range map[string]func(*Config){
		"grouped": func(*Config) {},
		"all":     func(c *Config) { c.KeyValueHeads = 4 },
		"one":     func(c *Config) { c.KeyValueHeads, c.Tied = 1, true },
		"linear":  func(c *Config) { c.Rope.Scaling, c.Rope.Factor = RopeLinear, 3 },
		"llama3":  func(c *Config) { c.Heads, c.KeyValueHeads, c.Rope = 1, 1, llama3 },
		"slices":  func(c *Config) { c.HeadShards, c.HalfGrain = 3, true },
	} {
		t.Run(name, func(t *testing.T) {
			c := smallLlama
			change(&c)
			ch := newChain(t, c, tensor.F64)
			enlarge(ch.s)
			ch.gradients()
			p, logits := plainOf(ch)
			loss := p.loss(logits, ch.targets)
			if got := ch.loss(); math.Abs(got-loss.x) > 1e-10 {
				t.Errorf("loss %v, plainly %v", got, loss.x)
			}
			equalLogits(t, ch, logits)
			equalGradients(t, ch, p, p.gradients(loss))
		})
	}
}

// plainOf returns the plain model with a chain's weights, and its logits.
func plainOf(ch *chain) (*plainLlama, [][]scalar) {
	p := &plainLlama{c: ch.s.Config, weights: make(map[string][]scalar)}
	for _, l := range ch.s.Layers {
		for _, w := range l.params {
			if !w.Borrowed() {
				p.weights[w.Weight] = append(p.weights[w.Weight], p.variables(tensor.Of[float64](w.W))...)
			}
		}
	}
	var logits [][]scalar
	for sequence := range slices.Chunk(ch.tokens, ch.x.T) {
		logits = append(logits, p.Forward(sequence)...)
	}
	return p, logits
}

// equalLogits compares what the head multiplies: its own logits are gradients by now.
func equalLogits(t *testing.T, ch *chain, want [][]scalar) {
	t.Helper()
	for i, l := range ch.s.Layers {
		if l.Kind != Head {
			continue
		}
		h := l.parts[0].(*head)
		normed := tensor.Of[float64](h.saved(ch.x, ch.x.Cut(ch.b, ch.saved[i])).normed)
		w := tensor.Of[float64](h.token.W)
		for n := range want {
			for v := range h.rows {
				logit := 0.0
				for k := range h.hidden {
					logit += normed[n*h.hidden+k] * w[v*h.hidden+k]
				}
				if off := math.Abs(logit - want[n][h.lo+v].x); off > 1e-10 {
					t.Fatalf("token %d: logit %d is %v, plainly %v", n, h.lo+v, logit, want[n][h.lo+v].x)
				}
			}
		}
	}
}

func equalGradients(t *testing.T, ch *chain, p *plainLlama, want []float64) {
	t.Helper()
	got := make(map[string][]float64) // a tied matrix: the sum of both ends
	for _, l := range ch.s.Layers {
		for _, w := range l.params {
			g := tensor.Of[float64](w.G)
			if w.Borrowed() {
				for i := range g {
					got[w.Weight][w.First*w.Cols+i] += g[i]
				}
				continue
			}
			got[w.Weight] = append(got[w.Weight], g...)
		}
	}
	for weight, variables := range p.weights {
		for i, v := range variables {
			if off := math.Abs(got[weight][i] - want[v.at]); off > 1e-10 {
				t.Fatalf("%s[%d]: gradient %v, plainly %v", weight, i, got[weight][i], want[v.at])
			}
		}
	}
}

// TestGradientOfLlama compares every gradient with the central difference of the loss,
// whatever the formats of the matrices, of some tokens.
func TestGradientOfLlama(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, format := range []Format{Dense, Masked, CSR} {
			t.Run(fmt.Sprintf("tied=%v/%v", tied, format), func(t *testing.T) {
				c := smallLlama
				c.Tied, c.HalfGrain, c.HeadShards = tied, tied, 1+len(format.String())%3
				ch := newChain(t, c, tensor.F64)
				enlarge(ch.s)
				thin(t, ch.s, format)
				if format == Masked {
					ch.some(4, 1, 3)
				}
				checkGradients(t, ch)
			})
		}
	}
}

// TestLlamaWithDynamism: a model whose exits keep all tokens, or whose routed blocks take
// all through an open gate, or whose attention has one bucket, is the plain one, bit for
// bit.
func TestLlamaWithDynamism(t *testing.T) {
	all := smallLlama
	all.KeyValueHeads = all.Heads
	dense := newChain(t, all, tensor.F32)
	dense.gradients()
	for name, change := range map[string]func(*Config){
		"exit":        func(c *Config) { *c = c.With(Exits{After: "1", Confidence: "classifier", Threshold: 1}) },
		"saturation":  func(c *Config) { *c = c.With(Exits{After: "1", Confidence: saturation, Threshold: 1}) },
		"propagation": func(c *Config) { *c = c.With(Exits{After: "1", Confidence: "softmax", Threshold: 1, Propagate: true}) },
		"mod":         func(c *Config) { *c = c.With(Depths{Capacity: 1, One: true}) },
		"attention":   func(c *Config) { *c = c.With(Buckets{Count: 1}) },
	} {
		c := all
		change(&c)
		ch := newChain(t, c, tensor.F32)
		ch.gradients()
		if x, y := ch.loss(), dense.loss(); x != y {
			t.Errorf("%s: loss %v, plain %v", name, x, y)
		}
		for _, l := range dense.s.Layers {
			for _, p := range l.params {
				at := slices.IndexFunc(ch.s.Layers, func(other *Layer) bool { return other.Name == l.Name })
				if got := ch.s.Layers[at].Param(p.Weight); !sameValues(got.G, p.G, tensor.F32) {
					t.Errorf("%s: %s has another gradient", name, p.Weight)
				}
			}
		}
	}
}

// TestGradientOfLlamaWithDynamism: gradients are right where tokens leave and go on as
// they are, or pass by a block.
func TestGradientOfLlamaWithDynamism(t *testing.T) {
	grouped := smallLlama
	grouped = grouped.With(Exits{After: "1", Confidence: "softmax", Threshold: 0.3, Probe: 0.5, Weight: 0.7})
	all := grouped
	all.KeyValueHeads, all.Tied = all.Heads, true
	Edit(&all, func(k *Exits) { k.Propagate = true })
	for name, c := range map[string]Config{"exit": grouped, "propagation": all} {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, c, tensor.F64)
			enlarge(ch.s)
			ch.leaveBy(4)
			checkGradients(t, ch)
			if left := ch.work[ch.exits()[0]].(*departure).left; left != 4 {
				t.Errorf("%d tokens left, want 4", left)
			}
		})
	}
	c := smallLlama
	c = c.With(Depths{Capacity: 0.5, Auxiliary: 0.3})
	ch := newChain(t, c, tensor.F64)
	enlarge(ch.s)
	checkGradientsOfRouting(t, ch, KindOf[Depths](c))
}

// TestGroupsOfOne: as many key-value heads as heads are what no number of them says.
func TestGroupsOfOne(t *testing.T) {
	a, b := smallLlama, smallLlama
	a.KeyValueHeads, b.KeyValueHeads = a.Heads, 0
	x, y := newChain(t, a, tensor.F32), newChain(t, b, tensor.F32)
	x.gradients()
	y.gradients()
	for i, l := range x.s.Layers {
		if !sameValues(l.g, y.s.Layers[i].g, tensor.F32) {
			t.Errorf("%s: other gradients", l.Name)
		}
	}
}

// TestLlamaBytes: what layers say they need is what they take.
func TestLlamaBytes(t *testing.T) {
	for _, half := range []bool{false, true} {
		c := smallLlama
		c.HalfGrain = half
		ch := newChain(t, c, tensor.F32)
		if used := ch.x.Device.Used(); used < ch.x.ScratchBytes(c) {
			t.Errorf("%d bytes in use with scratch of %d", used, ch.x.ScratchBytes(c))
		}
		ch.x.Close()
		sum := int64(0)
		for i, l := range Outline(c, ch.x) {
			if built := ch.s.Layers[i].Bytes(ch.x); l.Bytes != built {
				t.Errorf("%s: %+v before it is built, then %+v", l.Name, l.Bytes, built)
			}
			sum += l.Bytes.Static() + l.Bytes.Activations + l.Bytes.Held
		}
		if used := ch.x.Device.Used(); used != sum {
			t.Errorf("%d bytes in use, layers need %d", used, sum)
		}
	}
}
