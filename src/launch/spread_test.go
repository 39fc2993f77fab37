package launch

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"dynmo/src/config"
)

// spread is a LLaMA of two replicas that share six experts out.
func spread(c config.Config) config.Config {
	c = llama(c)
	c.Assign("moe.experts", 6, "moe.top", 2, "moe.intermediate", 24)
	c.Parallel.Replicas = 2
	c.Assign("parallel.experts", "spread")
	if !long {
		c.Train.Steps = 6
	}
	return c
}

// byStep freezes the first layers in mid-run.
func byStep(c *config.Config) { c.Assign("freeze.when", "step", "freeze.layers", 3, "freeze.step", 3) }

// TestSpreadExpertsKeepLaw1: experts that replicas share out, alone and with every kind of
// change that goes with them, have the losses, gradient norms and final hash of one stage
// that never moved a layer.
func TestSpreadExpertsKeepLaw1(t *testing.T) {
	keepLaw1(t, 17, spread, []mix{
		{"moe", nil}, {"moe+mod", dropping}, {"moe", sBase}, {"moe+exit", propagated}, {"freeze+moe+exit+mod", byStep}, {"moe+exit", saturation},
		{"moe+attention", ungrouped},
	})
}

// TestSpreadExpertsKeepLaw1OverFour: it is so with four replicas.
func TestSpreadExpertsKeepLaw1OverFour(t *testing.T) {
	if !long {
		t.Skip("with DYNMO_LONG=1")
	}
	keepLaw1(t, 1, func(c config.Config) config.Config {
		c = spread(c)
		c.Parallel.Replicas = 4
		c.Assign("moe.experts", 8)
		return c
	}, []mix{{"moe", nil}, {"moe+mod", dropping}, {"moe+exit", sBase}})
}

// TestSpreadExpertsTrainAsLocalOnes: losses are those of experts that each replica has, but
// for rounding; of one replica they are the same bits.
func TestSpreadExpertsTrainAsLocalOnes(t *testing.T) {
	c := spread(small(t))
	c.Train.Steps, c.Dynamic.Kind, c.Parallel.Stages = 6, "moe", 2
	for _, replicas := range []int{1, 2} {
		c.Parallel.Replicas = replicas
		c.Assign("parallel.experts", "spread")
		got := goRun(t, c, nil)
		c.Assign("parallel.experts", "local")
		want := goRun(t, c, nil)
		for step, loss := range want.losses {
			if math.Abs(float64(got.losses[step]-loss)) > 1e-4 {
				t.Errorf("%d replicas, step %d: loss %v, of local experts %v", replicas, step, got.losses[step], loss)
			}
		}
		if replicas == 1 {
			same(t, got, want)
		}
	}
}

// TestMemoryOfSpreadExperts: what a rank has allocated is what plans reckon with, whatever
// tokens come to its experts. Room for sums over replicas is reckoned as the whole chain, which
// is smaller than two buckets, would need it.
func TestMemoryOfSpreadExperts(t *testing.T) {
	for _, capacity := range []float64{0, 0.6} {
		c := spread(small(t))
		c.Train.Steps, c.Balance.Kind, c.Dynamic.Kind, c.Parallel.Stages = 2, "uniform", "moe", 3
		c.Assign("moe.capacity", capacity)
		seen := &balances{}
		err := trainLocally(t, c, seen, func(r *rank) error {
			stage := r.World.Rank() / 2
			used, want := float64(r.Device.Used()), float64(seen.last.BytesPerStage[stage]-r.Device.Kept())
			if used > 1.001*want || used < 0.93*want {
				return fmt.Errorf("stage %d uses %v bytes, %v are accounted for", stage, used, want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("capacity %v: %v", capacity, err)
		}
	}
}

// TestSpreadExpertsAreLeftAndValidated: losses, norms, the final hash and validation losses
// of experts that replicas share out are those of one stage where tokens have all left in
// front of some blocks, and where ranks leave in mid-run.
func TestSpreadExpertsAreLeftAndValidated(t *testing.T) {
	c := spread(mix{"moe+exit", nil}.of(validating(t)))
	c.Train.Steps, c.Model.Blocks = 5, 4
	c.Assign("exit.share", 0, "exit.threshold", -1)
	want := validate(t, c)
	c.Parallel.Stages, c.Schedule.Kind = 3, "zb-h1"
	if got := validate(t, c); !maps.Equal(got.found, want.found) || len(got.found) != 3 {
		t.Errorf("validation losses %v, want %v", got.found, want.found)
	}
	out := &run{}
	hash, left := shrunk(t, c, map[int]int{1: 2, 3: 1}, 1, out)
	out.hash = hash
	if same(t, out, &want.run); left != 4 {
		t.Errorf("%d ranks left, want 4", left)
	}
}
