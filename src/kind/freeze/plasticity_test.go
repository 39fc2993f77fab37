package freeze

import (
	"math"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/random"
)

// TestDissimilarity: rows that are alike in the same way differ in nothing, whatever their
// scale; a case by hand: G_A = 1, G_B all 1, rows over √2.
func TestDissimilarity(t *testing.T) {
	apart, equal := [][]float32{{1, 0}, {0, 2}}, [][]float32{{3, 0}, {3, 0}}
	half := math.Sqrt2 / 2
	for _, c := range []struct {
		name string
		a, b [][]float32
		want float64
	}{
		{"none", nil, nil, 0}, {"itself", apart, apart, 0}, {"scaled", apart, [][]float32{{5, 0}, {0, 10}}, 0},
		{"by hand", apart, equal, 2 * ((1-half)*(1-half) + half*half) / 4}, {"zeros", [][]float32{{0, 0}}, [][]float32{{1, 0}}, 1},
	} {
		if got := dissimilarity(c.a, c.b); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// few returns a freezing of small windows, of an embedding, four layers of blocks and a head.
func few() *plasticity {
	return &plasticity{
		options: options{Every: 1, Reference: 2, Average: 1, Window: 3, Tolerance: 0.05, Thaw: 4},
		known:   true, layers: make([]freezing, 6), candidates: []int{1, 2, 3},
	}
}

// TestStoppedFalling: of six evaluations that averages of two are over (two lie between
// references).
func TestStoppedFalling(t *testing.T) {
	for _, c := range []struct {
		name    string
		history []float64
		want    bool
	}{
		{"too few", []float64{1, 1, 1}, false}, {"level", []float64{1, 1, 1, 1}, true}, {"rises", []float64{1, 2, 3, 4}, true},
		{"falls", []float64{4, 3, 2, 1}, false}, {"falls by less than the tolerance", []float64{1, 0.98, 0.96, 0.94}, true},
		{"grows between references", []float64{1, 3, 1, 3}, true}, {"once fell", []float64{9, 5, 1, 1, 1, 1}, true}, {"nothing", make([]float64, 4), true},
	} {
		if got := few().stopped(c.history, 3); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestFrontFreezes: a layer freezes with all before it, never before the one in front, and
// all thaw when the learning rate has fallen by the factor.
func TestFrontFreezes(t *testing.T) {
	p, level, falls := few(), []float64{1, 1, 1, 1}, []float64{4, 3, 2, 1}
	p.layers[1].History, p.layers[2].History = falls, level
	if c := p.decide(1); c.Structure {
		t.Errorf("the second freezes before the first: %+v", c)
	}
	p.layers[1].History = level
	if c := p.decide(1); c.Kind != "freeze" || c.Detail["layers"] != 3 || p.frozen() != 3 {
		t.Errorf("%+v, want the embedding and two layers", c)
	}
	if c := p.decide(0.26); c.Structure {
		t.Errorf("%+v", c)
	}
	p.layers[3].History = level
	if c := p.decide(0.26); c.Detail["layers"] != 4 {
		t.Errorf("%+v", c)
	}
	if c := p.decide(0.25); c.Kind != "thaw" || c.Detail["layers"] != 4 || p.frozen() != 0 || !p.anew || p.layers[3].History != nil {
		t.Errorf("%+v, %+v", c, p.layers)
	}
	if was, never := p.windowOf(p.layers[1]), p.windowOf(p.layers[4]); was != 2 || never != 3 {
		t.Errorf("windows of %d where a layer has thawed and %d where none has, want 2 and 3", was, never)
	}
	p.Thaw = 0
	p.layers[1] = freezing{LR: 1}
	if c := p.decide(1e-9); c.Structure {
		t.Errorf("thaws though it never should: %+v", c)
	}
}

// TestCompare: the plasticity of a layer is known once all microbatches are, in whatever order,
// and is that of their sequences together.
func TestCompare(t *testing.T) {
	p := few()
	p.target, p.seen = dynamic.Target{Stage: &model.Stage{Watch: &model.Watch{Layers: []int{2}, Microbatches: 2}}}, make(map[int]*compared)
	live, reference := [][][]float32{{{1, 0}}, {{0, 2}}}, [][][]float32{{{3, 0}}, {{3, 0}}}
	if seen := p.compare(2, 1, live[1], reference[1]); seen != nil {
		t.Errorf("%+v of one microbatch of two", seen)
	}
	seen := p.compare(2, 0, live[0], reference[0])
	half := math.Sqrt2 / 2
	if want := 2 * ((1-half)*(1-half) + half*half) / 4; len(seen) != 1 || math.Abs(float64(seen[0].Values[0])*plasticityUnit-want) > 1e-14 {
		t.Errorf("%+v, want %v", seen, want)
	}
	nan := [][]float32{{float32(math.NaN()), 0}}
	p.compare(2, 0, nan, nan)
	if seen := p.compare(2, 1, live[1], nan); seen != nil {
		t.Errorf("%+v of states that are no numbers", seen)
	}
}

// TestEvaluated: counts of others are left alone.
func TestEvaluated(t *testing.T) {
	counts := []cost.CountSum{{Name: "tokens", Layer: 1, Values: []int64{3}}}
	if p, s := evaluated(counts); p != nil || s != 0 {
		t.Errorf("%v, %v", p, s)
	}
	counts = append(counts, cost.CountSum{Name: plasticityCount, Layer: 2, Values: []int64{2_000_000}}, cost.CountSum{Name: referenceCount, Layer: 2, Values: []int64{500}})
	if p, s := evaluated(counts); len(p) != 1 || math.Abs(p[2]-2e-9) > 1e-20 || math.Abs(s-5e-7) > 1e-20 {
		t.Errorf("%v, %v", p, s)
	}
}

// TestHostileFreezing: whatever a layer's section says, it is refused, or numbers that a
// run can go on with.
func TestHostileFreezing(t *testing.T) {
	good := `{"history":[0.5,1e-9],"lr":0.001}`
	if f, err := readFreezing([]byte(good)); err != nil || f.LR != 0.001 || len(f.History) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	for text, want := range map[string]string{
		``: "", `{}x`: "", `[1]`: "", `{"history":[-1]}`: "history[0]: -1, want", `{"history":[5]}`: "want a number from 0 to 4",
		`{"lr":-1}`: "lr: -1, want", `{"lr":1e999}`: "", `{"thawed":-1}`: "thawed: -1, want", `{"histroy":[1]}`: "histroy",
	} {
		if f, err := readFreezing([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
	draw := random.Keyed(5)
	for range 200 {
		text := []byte(good)
		text[draw.IntN(len(text))] = byte(draw.IntN(256))
		f, err := readFreezing(text)
		for _, x := range append(f.History, f.LR) {
			if err == nil && !(x >= 0) {
				t.Errorf("%s: %+v", text, f)
			}
		}
	}
}
