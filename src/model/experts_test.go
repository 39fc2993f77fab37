package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/tensor"
)

// mixture returns a small LLaMA with experts.
func mixture(e Experts) Config {
	c := smallLlama
	c = c.With(e)
	return c
}

// hasRouter reports whether a layer has a router of experts.
func (c *chain) hasRouter(layer int) bool {
	return slices.ContainsFunc(c.s.Layers[layer].Readings(), func(r Reading) bool { return r.Name == ExpertCounts })
}

// expertCounts returns what a layer with experts left for the host.
func (c *chain) expertCounts(layer int) []float64 {
	i := slices.IndexFunc(c.s.Layers[layer].Readings(), func(r Reading) bool { return r.Name == ExpertCounts })
	return tensor.Of[float64](c.s.Layers[layer].Reading(c.x, c.batches[layer], c.saved[layer], i))
}

// routersLoss returns the routers' own losses, weighted.
func (c *chain) routersLoss() (sum float64) {
	for i := range c.s.Layers {
		if e := KindOf[Experts](c.s.Config); c.hasRouter(i) {
			counts := c.expertCounts(i)
			if !e.Balanced {
				sum += e.Auxiliary * counts[2] / 1000
			}
			sum += e.Z * counts[3] / 1000
		}
	}
	return sum
}

// TestGradientOfExperts compares every gradient with the central difference of the loss
// and the routers' own; steps are too small to send a token elsewhere.
func TestGradientOfExperts(t *testing.T) {
	for name, e := range map[string]Experts{
		"top 2 of 3":       {Count: 3, Top: 2, Auxiliary: 0.3, Z: 0.2},
		"all":              {Count: 2, Top: 2, Auxiliary: 0.1},
		"capacity":         {Count: 3, Top: 2, Auxiliary: 0.2, Z: 0.1, Capacity: 0.6},
		"s-base":           {Count: 3, Top: 1, Balanced: true, Z: 0.1},
		"s-base, capacity": {Count: 4, Top: 2, Balanced: true, Capacity: 0.8},
		"empty experts":    {Count: 9, Top: 1, Auxiliary: 0.3},
		"scaled":           {Count: 4, Top: 2, Auxiliary: 0.3, Scale: 2},
		"scaled, s-base":   {Count: 4, Top: 2, Balanced: true, Z: 0.1, Scale: 3},
		"squashed":         {Count: 4, Top: 2, Auxiliary: 0.3, Z: 0.2, Squashed: true},
	} {
		for _, format := range []Format{Dense, CSR} {
			t.Run(fmt.Sprintf("%s/%v", name, format), func(t *testing.T) {
				c := mixture(e)
				c.HalfGrain = format == CSR
				ch := newChain(t, c, tensor.F64)
				enlarge(ch.s)
				thin(t, ch.s, format)
				if format == CSR {
					ch.some(4, 1, 3)
				}
				ch.also = ch.routersLoss
				checkGradients(t, ch)
			})
		}
	}
}

// TestGradientOfExpertsWithDynamism: gradients are right where tokens leave in front of
// experts, go on as they are, or pass by.
func TestGradientOfExpertsWithDynamism(t *testing.T) {
	e := Experts{Count: 3, Top: 2, Auxiliary: 0.3, Z: 0.2}
	leaving := mixture(e)
	leaving = leaving.With(Exits{After: "1", Confidence: "softmax", Threshold: 0.3, Probe: 0.5, Weight: 0.7})
	going := leaving
	going.KeyValueHeads, going.Tied = going.Heads, true
	Edit(&going, func(k *Exits) { k.Propagate = true })
	saturated := going
	Edit(&saturated, func(k *Exits) { k.Confidence = saturation })
	for name, c := range map[string]Config{"exit": leaving, "propagation": going, "saturation": saturated} {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, c, tensor.F64)
			enlarge(ch.s)
			ch.leaveBy(4)
			ch.also = ch.routersLoss
			checkGradients(t, ch)
		})
	}
	c := mixture(e)
	c = c.With(Depths{Capacity: 0.5, Auxiliary: 0.3})
	ch := newChain(t, c, tensor.F64)
	enlarge(ch.s)
	at := slices.IndexFunc(ch.s.Layers, func(l *Layer) bool { return l.Form == Routed })
	ch.also = func() float64 { return ch.routersLoss() + KindOf[Depths](c).Auxiliary*ch.routing(at)[3]/1000 }
	checkGradients(t, ch)
	if counts := ch.expertCounts(at); counts[0] != 6 {
		t.Errorf("experts of the routed block had %v tokens, want 6", counts[0])
	}
}

// TestOneExpertIsDense: one expert of top 1 is the dense model, bit for bit, however its
// router is balanced.
func TestOneExpertIsDense(t *testing.T) {
	for _, precision := range []tensor.DType{tensor.F32, tensor.F64} {
		for _, e := range []Experts{{Count: 1, Top: 1, Auxiliary: 1, Scale: 1, Squashed: true}, {Count: 1, Top: 1, Balanced: true}, {Count: 1, Top: 1, Capacity: 1}} {
			dense, ch := newChain(t, smallLlama, precision), newChain(t, mixture(e), precision)
			there := func(p *Param) *Param {
				for _, l := range ch.s.Layers {
					for _, q := range l.params {
						if strings.Replace(q.Weight, "expert.0.", "", 1) == p.Weight {
							return q
						}
					}
				}
				return nil
			}
			for _, l := range dense.s.Layers {
				for _, p := range l.params {
					copy(tensor.Of[byte](there(p).W), tensor.Of[byte](p.W))
				}
			}
			dense.gradients()
			ch.gradients()
			if x, y := ch.loss(), dense.loss(); x != y {
				t.Errorf("%v, %+v: loss %v, dense %v", precision, e, x, y)
			}
			for _, l := range dense.s.Layers {
				for _, p := range l.params {
					if !sameValues(there(p).G, p.G, precision) {
						t.Errorf("%v, %+v: %s has another gradient than in the dense model", precision, e, p.Weight)
					}
				}
			}
		}
	}
}

// TestExpertCounts: what layers count is where their tokens went.
func TestExpertCounts(t *testing.T) {
	c := mixture(Experts{Count: 3, Top: 2, Capacity: 0.5}) // 4 of the 20 assignments for each expert
	ch := newChain(t, c, tensor.F64)
	enlarge(ch.s)
	ch.loss()
	counts := ch.expertCounts(1)
	taken := counts[ExpertsFrom] + counts[ExpertsFrom+1] + counts[ExpertsFrom+2]
	if counts[0] != 10 || counts[1]+taken != 20 || slices.Max(counts[ExpertsFrom:]) > 4 || counts[1] == 0 {
		t.Errorf("counts %v of 10 tokens with two choices and 4 places at each of 3 experts", counts)
	}
}

// TestNoTokenAtExperts: a microbatch of which no token is left has no counts.
func TestNoTokenAtExperts(t *testing.T) {
	c := mixture(Experts{Count: 3, Top: 2})
	c = c.With(&selecting{rows: map[int][]int32{0: {}}})
	ch := newChain(t, c, tensor.F64)
	ch.gradients()
	if counts := ch.expertCounts(1); slices.Max(counts) != 0 {
		t.Errorf("counts %v of no tokens", counts)
	}
}

// TestExpertsFromSettings: only with their kind are there experts, in every block; halves
// of blocks are attention, and the MLP with all experts.
func TestExpertsFromSettings(t *testing.T) {
	c := config.Default()
	c.Model.Family, c.Model.Intermediate = "llama", 96
	if shape := FromConfig(c); KindOf[Experts](shape) != (Experts{}) || shape.Intermediate != 96 {
		t.Errorf("without the kind: %+v", shape)
	}
	c.Dynamic.Kind, c.Model.Grain, c.Model.Blocks = "moe", "half", 2
	c.Assign("moe.intermediate", 40)
	shape := FromConfig(c)
	if want := (Experts{Count: 8, Top: 2, Auxiliary: 0.01, Z: 0.001, Scale: 1}); KindOf[Experts](shape) != want || shape.Intermediate != 40 {
		t.Errorf("%+v, want %+v", KindOf[Experts](shape), want)
	}
	want := "embedding block.0.attention block.0.mlp block.1.attention block.1.mlp head"
	if got := strings.Join(shape.Names(), " "); got != want || c.Layers() != shape.Layers() {
		t.Errorf("%d layers: %s, want %s", c.Layers(), got, want)
	}
	c.Model.Grain, c.Model.Blocks = "expert", 3
	c.Assign("moe.groups", 4)
	for kind, want := range map[string]int{"moe": 1 + 3*5 + 1, "moe+mod": 1 + 2*5 + 1 + 1, "moe+exit": 1 + 2*5 + 1 + 1 + 1} {
		c.Dynamic.Kind = kind
		c.Assign("exit.after", "2", "exit.confidence", saturation)
		if shape := FromConfig(c); c.Layers() != want || shape.Layers() != want || KindOf[Experts](shape).Groups != 4 {
			t.Errorf("%s: %d layers of the settings, %d of the model, want %d", kind, c.Layers(), shape.Layers(), want)
		}
	}
}

// TestBytesOfExperts: what layers say they need is what they take.
func TestBytesOfExperts(t *testing.T) {
	c := mixture(Experts{Count: 3, Top: 2})
	ch := newChain(t, c, tensor.F32)
	ch.x.Close() // scratch is no layer's
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

// TestReferenceOfExperts: comparing a layer with a reference whose router sends tokens
// elsewhere leaves where they went.
func TestReferenceOfExperts(t *testing.T) {
	ch := newChain(t, mixture(Experts{Count: 3, Top: 1}), tensor.F64)
	enlarge(ch.s)
	l := ch.s.Layers[1]
	router := tensor.Of[float64](l.Param("block.0/router.weight").W)
	turn := func() {
		for i := range router {
			router[i] = -router[i]
		}
	}
	turn()
	must(t, l.Refer())
	turn()
	ch.loss()
	chosen := func() []int32 {
		experts, _, err := ch.work[1].(*Dispatch).Choices(ch.x)
		must(t, err)
		return slices.Clone(experts)
	}
	went := chosen()
	_, _, err := l.ReferenceRows(ch.x, ch.batches[1], ch.saved[1], ch.input(1), 5)
	must(t, err)
	if now := chosen(); !slices.Equal(now, went) {
		t.Errorf("tokens went to %v, and after the comparison to %v", went, now)
	}
}

// mixture is MixtralSparseMoeBlock of Hugging Face's modeling_mixtral.py for one token: the
// softmax over all experts, its largest, renormalised, and the sum of what these make.
func (p *plainLlama) mixture(at string, x []scalar) []scalar {
	scores := p.product(at+"router.weight", x)
	if KindOf[Experts](p.c).Squashed { // TopKBalancedNoisyGate of LLaMA-MoE's modeling_llama_moe_hf.py, gate_network "mlp", without its noise
		for k, a := range scores {
			u := math.Tanh(a.x)
			scores[k] = p.map1(a, u, 1-u*u)
		}
		scores = p.product(at+"router.outer.weight", scores)
	}
	all := p.softmax(scores)
	first := make([]int, len(all))
	for k := range first {
		first[k] = k
	}
	slices.SortFunc(first, func(a, b int) int { return cmp.Compare(all[b].x, all[a].x) })
	first = first[:KindOf[Experts](p.c).Top]
	kept := p.put(0, nil, nil)
	for _, k := range first {
		kept = p.add(kept, all[k])
	}
	share := p.map1(kept, 1/kept.x, -1/(kept.x*kept.x))
	out := make([]scalar, len(x))
	for i := range out {
		out[i] = p.put(0, nil, nil)
	}
	for _, k := range first {
		weight, scale := p.mul(all[k], share), cmp.Or(KindOf[Experts](p.c).Scale, 1)
		weight = p.map1(weight, weight.x*scale, scale)
		for i, y := range p.gated(fmt.Sprintf("%sexpert.%d.", at, k), x) {
			out[i] = p.add(out[i], p.mul(weight, y))
		}
	}
	return out
}

// TestExpertsAreThePlainModel: logits, loss and gradients are those of the model written
// number by number.
func TestExpertsAreThePlainModel(t *testing.T) {
	for _, e := range []Experts{{Count: 4, Top: 2}, {Count: 5, Top: 4}, {Count: 3, Top: 1}, {Count: 4, Top: 2, Scale: 4, Squashed: true}} {
		ch := newChain(t, mixture(e), tensor.F64)
		enlarge(ch.s)
		ch.gradients()
		p, logits := plainOf(ch)
		loss := p.loss(logits, ch.targets)
		if got := ch.loss(); math.Abs(got-loss.x) > 1e-10 {
			t.Errorf("%+v: loss %v, plainly %v", e, got, loss.x)
		}
		equalLogits(t, ch, logits)
		equalGradients(t, ch, p, p.gradients(loss))
	}
}

// TestParametersOfExperts: models have as many parameters as were published of them, and as
// many operations as the parameters that are active. LLaMA-MoE-3.5B (4/16) is LLaMA-2 7B, cut
// up, and routers of 16·4096 in each of 32 blocks.
func TestParametersOfExperts(t *testing.T) {
	c := Config{
		Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 8, Intermediate: 14336, NormEps: 1e-5, Rope: Rope{Base: 1e6},
		Sequence: 2048, Vocab: 32000,
	}.With(Experts{Count: 8, Top: 2})
	cut := c
	cut.KeyValueHeads, cut.Intermediate = 32, 688
	cut = cut.With(Experts{Count: 16, Top: 4})
	for _, m := range []struct {
		name        string
		shape       Config
		all, active int64
	}{
		{"Mixtral 8x7B", c, 46_702_792_704, 46_702_792_704 - 32*6*3*4096*14336},
		{"LLaMA-MoE-3.5B", cut, 6_738_415_616 + 32*16*4096, 6_738_415_616 + 32*16*4096 - 32*12*3*4096*688},
	} {
		if got := m.shape.Parameters(); got != m.all {
			t.Errorf("%s: %d parameters, want %d", m.name, got, m.all)
		}
		matrices := m.active - 4096*(32000+2*32+1) // without embedding and norms
		if got, want := m.shape.Flops(), 6*float64(matrices)+6*32*2048*4096; got != want {
			t.Errorf("%s: %v operations a token, want %v", m.name, got, want)
		}
	}
}
