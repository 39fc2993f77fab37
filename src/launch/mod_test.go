package launch

import (
	"fmt"
	"testing"

	"dynmo/src/config"
)

// mixed returns settings of small with a mixture of depths, beside other kinds or not.
func mixed(t *testing.T, kind, route string) config.Config {
	t.Helper()
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = kind, 8
	c.Assign("mod.capacity", 0.3, "mod.route", route)
	c.Assign("prune.start", 1, "prune.every", 2, "prune.times", 3)
	c.Assign("freeze.when", "step", "freeze.layers", 3, "freeze.step", 4)
	c.Assign("exit.share", 0.6, "exit.start", 2, "exit.until", 6)
	return c
}

// TestRoutingKeepsLaw1: with blocks that route tokens, alone and beside other kinds, every
// loss, gradient norm and the final hash are those of one stage that never moved a layer.
// Under -short two of the cases.
func TestRoutingKeepsLaw1(t *testing.T) {
	for i, v := range []struct{ kind, route string }{{"mod", "topk"}, {"mod", "predictor"}, {"prune+mod", "predictor"}, {"freeze+mod", "predictor"}, {"exit+mod", "predictor"}} {
		for replicas := 1; replicas <= 2; replicas++ {
			if testing.Short() && (i+replicas)%5 != 0 {
				continue
			}
			c := mixed(t, v.kind, v.route)
			c.Parallel.Replicas, c.Model.HeadShards = replicas, 1+2*(i%2)
			c.Model.Grain = []string{"block", "half"}[(i+replicas)%2]
			still := goRun(t, c, nil)
			if first, last := still.losses[0], still.losses[len(still.losses)-1]; last >= first {
				t.Errorf("loss from %v to %v", first, last)
			}
			for k, plan := range []struct {
				kind   string
				stages int
			}{{"1f1b", 8}, {"zb-h2", 4}, {"zb-v", 2}, {"interleaved", 2}, {"gpipe", 4}, {"zb-h1", 2}} {
				if !long && (k+i+replicas)%2 != 0 {
					continue
				}
				c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = plan.stages, plan.kind, 2
				t.Run(fmt.Sprintf("%s/%s/D=%d/%s/P=%d", v.kind, v.route, replicas, plan.kind, plan.stages), func(t *testing.T) {
					moved := goRun(t, c, scatter(uint64(k)))
					if at := moved.difference(still); at != "" || moved.moves == 0 {
						t.Errorf("%d moves, differs from one stage at %q", moved.moves, at)
					}
				})
			}
		}
	}
}

// TestPlasticityOfRoutedBlocks: blocks that route tokens freeze with those behind them,
// by plasticity, wherever they lie.
func TestPlasticityOfRoutedBlocks(t *testing.T) {
	c := plastic(t)
	c.Dynamic.Kind = "freeze+mod"
	c.Assign("mod.capacity", 0.3, "mod.route", "predictor")
	still := goRun(t, c, nil)
	if len(still.frozen) < 3 {
		t.Fatalf("%q: want layers that freeze, and thaw", still.frozen)
	}
	c.Parallel.Stages, c.Schedule.Kind = 4, "zb-h1"
	if at := goRun(t, c, scatter(1)).difference(still); at != "" {
		t.Errorf("differs from one stage at %s", at)
	}
}

// TestRoutingKeepsLaw2: a run with blocks that route tokens goes on from a checkpoint, on
// other stages, as if it had never ended.
func TestRoutingKeepsLaw2(t *testing.T) {
	for _, kind := range []string{"mod", "prune+freeze+mod", "exit+mod"} {
		c := mixed(t, kind, "predictor")
		c.Parallel.Stages = 3
		whole := goRun(t, c, nil)
		saved := part{dir: t.TempDir(), stop: 5}
		first, _ := trainPart(t, c, saved)
		c.Parallel.Stages = 2
		then, _ := trainPart(t, c, part{from: saved.dir})
		if at := joined(first, then).difference(whole); at != "" {
			t.Errorf("%s: differs from an undisturbed run at %s", kind, at)
		}
	}
}

// TestWholeCapacityTrainsAsDense: with capacity 1, an open gate and no loss of its own,
// the losses of the first step are the dense model's bits. Gradient norms add the slabs'
// squares in blocks of another alignment, so that clipping may differ in the last bit, and
// later losses agree to 1e-6.
func TestWholeCapacityTrainsAsDense(t *testing.T) {
	c := mixed(t, "none", "topk")
	dense := goRun(t, c, nil)
	c.Dynamic.Kind = "mod"
	c.Assign("mod.capacity", 1, "mod.gate", "one", "mod.auxiliary", 0)
	c.Parallel.Stages = 3
	got := goRun(t, c, scatter(1))
	if got.losses[0] != dense.losses[0] {
		t.Errorf("first loss %v, dense %v", got.losses[0], dense.losses[0])
	}
	for i, loss := range got.losses {
		if d := float64(loss - dense.losses[i]); d < -1e-6 || d > 1e-6 {
			t.Errorf("step %d: loss %v, dense %v", i, loss, dense.losses[i])
		}
	}
}

// TestRoutingNothingAndEverything: thresholds that no token and that every token passes
// work, and so do sequences of one token.
func TestRoutingNothingAndEverything(t *testing.T) {
	for _, threshold := range []float64{0, 1} {
		c := mixed(t, "mod", "predictor")
		c.Train.Steps, c.Parallel.Stages = 3, 2
		c.Assign("mod.threshold", threshold)
		goRun(t, c, nil)
	}
	c := mixed(t, "mod", "topk")
	c.Model.Sequence, c.Train.Steps = 1, 3
	goRun(t, c, nil)
}
