package pipeline_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/piece"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// mixture returns a small LLaMA with six experts in every block.
func mixture(e moe.Experts) model.Config {
	e.Count = 6
	return model.Config{
		Family: "llama", Blocks: 3, Hidden: 16, Heads: 2, Sequence: 8, Vocab: 32, Tied: true, Seed: 5,
		Intermediate: 24, NormEps: 1e-5, Rope: model.Rope{Base: 1e4},
	}.With(e)
}

// summed is what a step leaves: the loss, the norm, and by weight its initial value and its
// gradient, summed over replicas.
type summed struct {
	agreed            pipeline.Agreement
	values, gradients map[string][]float64
}

// step does a step of two replicas; before it differ makes them differ.
func step(t *testing.T, c model.Config, plan schedule.Schedule, differ func(replica int, s *model.Stage)) summed {
	t.Helper()
	out := summed{values: map[string][]float64{}, gradients: map[string][]float64{}}
	var mu sync.Mutex
	expect.OK(t, local.Run(2*plan.Map.Stages, func(tr comm.Transport) error {
		clock := device.NewWall()
		r, err := runnerOf(tr, c, plan, clock, ref.New(tensor.F64), comm.Options{Clock: clock})
		if err != nil {
			return err
		}
		replica := r.groups.Replicas.Rank()
		for _, l := range r.s.Layers {
			for _, p := range l.Params() {
				for i, w := range tensor.Of[float64](p.W) {
					tensor.Of[float64](p.W)[i] = 8 * w // so that gradients are of the size of weights
				}
			}
		}
		mu.Lock()
		for _, l := range r.s.Layers {
			for _, p := range l.Params() {
				out.values[p.Weight] = slices.Clone(tensor.Of[float64](p.W))
			}
		}
		mu.Unlock()
		if differ != nil {
			differ(replica, r.s)
		}
		done, err := r.Step(r.feed)
		if err != nil {
			return err
		}
		agreed, err := r.Agree(done.Losses, pipeline.Nothing)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out.agreed = agreed
		for _, l := range r.s.Layers {
			for _, p := range l.Params() {
				if !p.Borrowed() && !p.Copy {
					out.gradients[p.Weight] = slices.Clone(tensor.Of[float64](p.G))
				}
			}
		}
		return nil
	}))
	return out
}

// spreadCases are models whose experts can be spread over two replicas.
func spreadCases() map[string]model.Config {
	routed := mixture(moe.Experts{Top: 2, Auxiliary: 0.3}).With(mod.Depths{Capacity: 0.5, Auxiliary: 0.3})
	leaving := mixture(moe.Experts{Top: 2, Z: 0.2}).With(exit.Exits{After: "1", Confidence: "softmax", Threshold: 0.034, Probe: 0.25, Weight: 0.3})
	going := leaving
	modeltest.Edit(&going, func(k *exit.Exits) { k.Confidence, k.Threshold, k.Propagate = "saturation", 0.5, true })
	predicted := routed
	modeltest.Edit(&predicted, func(k *mod.Depths) { k.Predictor, k.Threshold = true, 0.5 })
	half := mixture(moe.Experts{Top: 4, Auxiliary: 0.3, Z: 0.1})
	half.HalfGrain = true
	return map[string]model.Config{
		"aux": mixture(moe.Experts{Top: 2, Auxiliary: 0.3, Z: 0.1}), "half blocks": half, "capacity": mixture(moe.Experts{Top: 3, Capacity: 0.5}),
		"s-base": mixture(moe.Experts{Top: 1, Balanced: true, Deviation: 8, Rounds: 16, Z: 0.1}), "mod": routed, "predictor": predicted, "exit": leaving, "propagated": going,
	}
}

// TestSpreadExpertsAreLocalOnes: experts that two replicas share out begin with the weights
// of those that each has, and have the gradients of both replicas' tokens.
func TestSpreadExpertsAreLocalOnes(t *testing.T) {
	plan, rnd := newSchedule(t, schedule.Kind1F1B, 2, 1), rand.New(rand.NewPCG(3, 4)) // fixed seed: a failure must repeat
	for name, c := range spreadCases() {
		t.Run(name, func(t *testing.T) { agreeSpread(t, c, plan, nil) })
		modeltest.Edit(&c, func(k *moe.Experts) { k.BlockRows, k.Spare = 3, 2 })
		c.Pieces = randomPieces(rnd, c, 6, 5)
		t.Run(name+", copies", func(t *testing.T) { agreeSpread(t, c, plan, nil) })
	}
}

// TestSpreadExpertsWithoutTokens: it is so where one replica has no tokens for its experts,
// and where its blocks have none at all.
func TestSpreadExpertsWithoutTokens(t *testing.T) {
	plan := newSchedule(t, schedule.KindZBH1, 2, 1)
	cases := spreadCases()
	for empty := range 3 { // 2: no replica has tokens
		for name, leave := range map[string]func(l *model.Layer, none bool){"exit": leaves, "propagated": leaves, "predictor": passes} {
			t.Run(fmt.Sprintf("%s, replica %d", name, empty), func(t *testing.T) {
				agreeSpread(t, cases[name], plan, func(replica int, s *model.Stage) {
					for _, l := range s.Layers {
						leave(l, empty == 2 || replica == empty)
					}
				})
			})
		}
	}
	for expert := range 2 {
		t.Run(fmt.Sprintf("expert %d alone", 5*expert), func(t *testing.T) {
			agreeSpread(t, mixture(moe.Experts{Top: 1}), plan, func(_ int, s *model.Stage) {
				for _, l := range s.Layers {
					for _, p := range l.Params() {
						if p.Name == "router.weight" {
							always(tensor.Of[float64](p.W), p.Cols, 5*expert)
						}
					}
				}
			})
		})
	}
}

// leaves has all tokens leave at an exit, or none.
func leaves(l *model.Layer, all bool) {
	if _, exit := l.Tuning(); exit {
		l.Tune(map[bool]float64{true: -1, false: 2}[all])
	}
}

// passes has all tokens pass by a routed block, or none.
func passes(l *model.Layer, all bool) {
	for _, p := range l.Params() {
		if p.Name == "predictor.down.bias" {
			tensor.Of[float64](p.W)[0] = map[bool]float64{true: -1e3, false: 1e3}[all]
		}
	}
}

// always sets a router's weights so that equal logits send all tokens to the first expert. With
// another expert, noise in that expert's row sends a token to it or to the first.
func always(w []float64, cols, expert int) {
	clear(w)
	for i := range cols {
		w[expert*cols+i] = 1e-3 * float64(expert) * float64(1-i%2*2)
	}
}

// agreeSpread fails the test unless experts of a model agree, spread over replicas or not.
func agreeSpread(t *testing.T, c model.Config, plan schedule.Schedule, differ func(replica int, s *model.Stage)) {
	t.Helper()
	want := step(t, c, plan, differ)
	c.Spread = 2
	got := step(t, c, plan, differ)
	if math.Abs(got.agreed.Loss-want.agreed.Loss) > 1e-10 || math.Abs(got.agreed.Norm-want.agreed.Norm) > 1e-10 {
		t.Errorf("loss and norm %+v, of local experts %+v", got.agreed, want.agreed)
	}
	if len(got.values) != len(want.values) || len(got.gradients) != len(want.gradients) {
		t.Errorf("%d weights, of local experts %d", len(got.values), len(want.values))
	}
	for weight, value := range want.values {
		if !slices.Equal(got.values[weight], value) {
			t.Errorf("%s begins with other values", weight)
		}
	}
	for weight, g := range want.gradients {
		largest := max(slices.Max(g), -slices.Min(g))
		for i, x := range g {
			if d := math.Abs(got.gradients[weight][i] - x); !(d <= 1e-10*largest) {
				t.Errorf("%s: gradient %d is %v, of local experts %v, of up to %v", weight, i, got.gradients[weight][i], x, largest)
				break
			}
		}
	}
}

// TestCopiesChangeNoBit: loss, norm, gradients and the weights that an update makes are the same
// bits wherever experts and their copies are.
func TestCopiesChangeNoBit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	plan := newSchedule(t, schedule.KindZBH1, 2, 1)
	for name, c := range spreadCases() {
		modeltest.Edit(&c, func(k *moe.Experts) { k.BlockRows, k.Spare = 3, 2 })
		c.Spread = 2
		want := step(t, c, plan, nil)
		for range 3 {
			c.Pieces = randomPieces(rnd, c, 6, 5)
			got := step(t, c, plan, nil)
			if got.agreed != want.agreed {
				t.Errorf("%s, %s: loss and norm %+v, without copies %+v", name, c.Pieces, got.agreed, want.agreed)
			}
			for weight, g := range want.gradients {
				if !slices.Equal(got.gradients[weight], g) {
					t.Errorf("%s, %s: another gradient of %s", name, c.Pieces, weight)
				}
			}
		}
	}
}

// randomPieces returns a random map of the experts of every block to two replicas with the given
// number of places each.
func randomPieces(rnd *rand.Rand, c model.Config, experts, places int) piece.Assignment {
	var maps []piece.Map
	for range c.Blocks {
		m, held := make(piece.Map, experts), [2]int{}
		for e := range m {
			owner := rnd.IntN(2)
			if held[owner] == places {
				owner = 1 - owner
			}
			m[e], held[owner] = []int{owner}, held[owner]+1
		}
		for e := range m {
			if other := 1 - m[e][0]; held[other] < places && rnd.IntN(2) == 0 {
				m[e], held[other] = append(m[e], other), held[other]+1
			}
		}
		maps = append(maps, m)
	}
	return piece.New(maps)
}
