package moe

import (
	"bytes"
	"cmp"
	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// mixture returns a small LLaMA with experts.
func mixture(e Experts) model.Config {
	c := modeltest.SmallLlama
	c = c.With(e)
	return c
}

// routersLoss returns the routers' own losses, weighted.
func routersLoss(c *modeltest.Chain) float64 {
	e := model.KindOf[Experts](c.S.Config)
	auxiliary := e.Auxiliary
	if e.Balanced {
		auxiliary = 0
	}
	return c.Weighted(Counts, 0, 0, auxiliary/1000, e.Z/1000)
}

// TestGradientOfExperts compares every gradient with the central difference of the loss
// and the routers' own; steps are too small to send a token elsewhere.
func TestGradientOfExperts(t *testing.T) {
	for name, e := range map[string]Experts{
		"top 2 of 3":       {Count: 3, Top: 2, Auxiliary: 0.3, Z: 0.2},
		"all":              {Count: 2, Top: 2, Auxiliary: 0.1},
		"capacity":         {Count: 3, Top: 2, Auxiliary: 0.2, Z: 0.1, Capacity: 0.6},
		"s-base":           {Count: 3, Top: 1, Balanced: true, Deviation: 8, Rounds: 16, Z: 0.1},
		"s-base, capacity": {Count: 4, Top: 2, Balanced: true, Deviation: 8, Rounds: 16, Capacity: 0.8},
		"empty experts":    {Count: 9, Top: 1, Auxiliary: 0.3},
		"scaled":           {Count: 4, Top: 2, Auxiliary: 0.3, Scale: 2},
		"scaled, s-base":   {Count: 4, Top: 2, Balanced: true, Deviation: 8, Rounds: 16, Z: 0.1, Scale: 3},
		"squashed":         {Count: 4, Top: 2, Auxiliary: 0.3, Z: 0.2, Squashed: true},
	} {
		for _, format := range []model.Format{model.Dense, model.CSR} {
			t.Run(fmt.Sprintf("%s/%v", name, format), func(t *testing.T) {
				c := mixture(e)
				c.HalfGrain = format == model.CSR
				ch := modeltest.New(t, c, tensor.F64)
				modeltest.Enlarge(ch.S)
				modeltest.Thin(t, ch.S, format)
				if format == model.CSR {
					ch.Some(4, 1, 3)
				}
				ch.Also = func() float64 { return routersLoss(ch) }
				modeltest.CheckGradients(t, ch)
			})
		}
	}
}

// TestOneExpertIsDense: one expert of top 1 is the dense model, bit for bit, however its
// router is balanced.
func TestOneExpertIsDense(t *testing.T) {
	for _, precision := range []tensor.DType{tensor.F32, tensor.F64} {
		for _, e := range []Experts{{Count: 1, Top: 1, Auxiliary: 1, Scale: 1, Squashed: true}, {Count: 1, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}, {Count: 1, Top: 1, Capacity: 1}} {
			dense, ch := modeltest.New(t, modeltest.SmallLlama, precision), modeltest.New(t, mixture(e), precision)
			there := func(p *model.Param) *model.Param {
				for _, l := range ch.S.Layers {
					for _, q := range l.Params() {
						if strings.Replace(q.Weight, "expert.0.", "", 1) == p.Weight {
							return q
						}
					}
				}
				return nil
			}
			for _, l := range dense.S.Layers {
				for _, p := range l.Params() {
					copy(tensor.Of[byte](there(p).W), tensor.Of[byte](p.W))
				}
			}
			dense.Gradients()
			ch.Gradients()
			if x, y := ch.Loss(), dense.Loss(); x != y {
				t.Errorf("%v, %+v: loss %v, dense %v", precision, e, x, y)
			}
			for _, l := range dense.S.Layers {
				for _, p := range l.Params() {
					if !modeltest.SameValues(there(p).G, p.G, precision) {
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
	ch := modeltest.New(t, c, tensor.F64)
	modeltest.Enlarge(ch.S)
	ch.Loss()
	counts := ch.Read(1, Counts)
	taken := counts[countsFrom] + counts[countsFrom+1] + counts[countsFrom+2]
	if counts[0] != 10 || counts[1]+taken != 20 || slices.Max(counts[countsFrom:]) > 4 || counts[1] == 0 {
		t.Errorf("counts %v of 10 tokens with two choices and 4 places at each of 3 experts", counts)
	}
}

// TestNoTokenAtExperts: a microbatch without tokens has no counts.
func TestNoTokenAtExperts(t *testing.T) {
	c := mixture(Experts{Count: 3, Top: 2})
	c = c.With(&modeltest.Selecting{Rows: map[int][]int32{0: {}}})
	ch := modeltest.New(t, c, tensor.F64)
	ch.Gradients()
	if counts := ch.Read(1, Counts); slices.Max(counts) != 0 {
		t.Errorf("counts %v of no tokens", counts)
	}
}

// TestExpertsFromSettings: only with their kind are there experts, in every block; halves
// of blocks are attention, and the MLP with all experts.
func TestExpertsFromSettings(t *testing.T) {
	c := config.Default()
	c.Assign("model.family", "llama", "model.intermediate", 96)
	if shape := model.FromConfig(c); model.KindOf[Experts](shape) != (Experts{}) || shape.Intermediate != 96 {
		t.Errorf("without the kind: %+v", shape)
	}
	c.Dynamic.Kind, c.Model.Grain, c.Model.Blocks = "moe", "half", 2
	c.Assign("moe.intermediate", 40)
	shape := model.FromConfig(c)
	if want := (Experts{Count: 8, Top: 2, Deviation: 8, Rounds: 16, Auxiliary: 0.01, Scale: 1}); model.KindOf[Experts](shape) != want || shape.Intermediate != 40 {
		t.Errorf("%+v, want %+v", model.KindOf[Experts](shape), want)
	}
	want := "embedding block.0.attention block.0.mlp block.1.attention block.1.mlp head"
	if got := strings.Join(shape.Names(), " "); got != want || c.Layers() != shape.Layers() {
		t.Errorf("%d layers: %s, want %s", c.Layers(), got, want)
	}
	c.Model.Grain, c.Model.Blocks = "expert", 3
	c.Assign("moe.groups", 4)
	for kind, want := range map[string]int{"moe": 1 + 3*5 + 1, "moe+mod": 1 + 2*5 + 1 + 1, "moe+exit": 1 + 2*5 + 1 + 1 + 1} {
		c.Dynamic.Kind = kind
		c.Assign("exit.after", "2", "exit.confidence", "saturation")
		if shape := model.FromConfig(c); c.Layers() != want || shape.Layers() != want || model.KindOf[Experts](shape).Groups != 4 {
			t.Errorf("%s: %d layers of the settings, %d of the model, want %d", kind, c.Layers(), shape.Layers(), want)
		}
	}
}

// TestBytesOfExperts: the bytes that layers announce are the bytes that they take.
func TestBytesOfExperts(t *testing.T) {
	c := mixture(Experts{Count: 3, Top: 2})
	ch := modeltest.New(t, c, tensor.F32)
	ch.CheckBytes(t)
}

// TestReferenceOfExperts: comparing a layer with a reference whose router sends tokens
// elsewhere leaves where they went.
func TestReferenceOfExperts(t *testing.T) {
	ch := modeltest.New(t, mixture(Experts{Count: 3, Top: 1}), tensor.F64)
	modeltest.Enlarge(ch.S)
	l := ch.S.Layers[1]
	router := tensor.Of[float64](l.Param("block.0/router.weight").W)
	turn := func() {
		for i := range router {
			router[i] = -router[i]
		}
	}
	turn()
	expect.OK(t, l.Refer(ch.X))
	turn()
	ch.Loss()
	saved, ends := bytes.Clone(tensor.Of[byte](ch.Saved[1].Kept)), slices.Clone(ch.Work[1].(*dispatch).ends)
	_, err := l.ReferenceForward(ch.X, ch.Batches[1], &model.Heap{Device: ch.X.Device}, ch.Input(1), ch.Tokens, ch.Targets)
	expect.OK(t, err)
	if now := ch.Work[1].(*dispatch).ends; !slices.Equal(now, ends) || !bytes.Equal(tensor.Of[byte](ch.Saved[1].Kept), saved) {
		t.Errorf("experts' rows end at %v, and after the comparison at %v; or what is saved has changed", ends, now)
	}
}

// plainMixture is MixtralSparseMoeBlock of Hugging Face's modeling_mixtral.py for one token: the
// softmax over all experts, its largest, renormalised, and the sum of what these make.
func plainMixture(p *modeltest.Plain, at string, x []modeltest.Scalar) []modeltest.Scalar {
	scores := p.Product(at+"router.weight", x)
	if model.KindOf[Experts](p.Config).Squashed { // TopKBalancedNoisyGate of LLaMA-MoE's modeling_llama_moe_hf.py, gate_network "mlp", without its noise
		for k, a := range scores {
			u := math.Tanh(a.X)
			scores[k] = p.Map(a, u, 1-u*u)
		}
		scores = p.Product(at+"router.outer.weight", scores)
	}
	all := p.Softmax(scores)
	first := make([]int, len(all))
	for k := range first {
		first[k] = k
	}
	slices.SortFunc(first, func(a, b int) int { return cmp.Compare(all[b].X, all[a].X) })
	first = first[:model.KindOf[Experts](p.Config).Top]
	kept := p.Put(0, nil, nil)
	for _, k := range first {
		kept = p.Add(kept, all[k])
	}
	share := p.Map(kept, 1/kept.X, -1/(kept.X*kept.X))
	out := make([]modeltest.Scalar, len(x))
	for i := range out {
		out[i] = p.Put(0, nil, nil)
	}
	for _, k := range first {
		weight, scale := p.Mul(all[k], share), cmp.Or(model.KindOf[Experts](p.Config).Scale, 1)
		weight = p.Map(weight, weight.X*scale, scale)
		for i, y := range p.Gated(fmt.Sprintf("%sexpert.%d.", at, k), x) {
			out[i] = p.Add(out[i], p.Mul(weight, y))
		}
	}
	return out
}

// TestExpertsAreThePlainModel: logits, loss and gradients are those of the model written
// number by number.
func TestExpertsAreThePlainModel(t *testing.T) {
	for _, e := range []Experts{{Count: 4, Top: 2}, {Count: 5, Top: 4}, {Count: 3, Top: 1}, {Count: 4, Top: 2, Scale: 4, Squashed: true}} {
		ch := modeltest.New(t, mixture(e), tensor.F64)
		modeltest.Enlarge(ch.S)
		ch.Gradients()
		p, logits := modeltest.PlainOf(ch, func(p *modeltest.Plain) {
			p.FeedForward = func(at string, x []modeltest.Scalar) []modeltest.Scalar { return plainMixture(p, at, x) }
		})
		loss := p.Loss(logits, ch.Targets)
		if got := ch.Loss(); math.Abs(got-loss.X) > 1e-10 {
			t.Errorf("%+v: loss %v, plainly %v", e, got, loss.X)
		}
		modeltest.EqualGradients(t, ch, p, p.Derivatives(loss))
	}
}

// TestParametersOfExperts: models have as many parameters as were published of them, and as
// many operations as the parameters that are active. LLaMA-MoE-3.5B (4/16) is LLaMA-2 7B, cut
// up, and routers of 16·4096 in each of 32 blocks.
func TestParametersOfExperts(t *testing.T) {
	c := model.Config{
		Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 8, Intermediate: 14336, NormEps: 1e-5, Rope: model.Rope{Base: 1e6},
		Sequence: 2048, Vocab: 32000,
	}.With(Experts{Count: 8, Top: 2})
	cut := c
	cut.KeyValueHeads, cut.Intermediate = 32, 688
	cut = cut.With(Experts{Count: 16, Top: 4})
	for _, m := range []struct {
		name        string
		shape       model.Config
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
