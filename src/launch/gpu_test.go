//go:build cuda && cgo

package launch

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/data"
	"dynmo/src/expect"
)

// TestPlacementChangesNothingOnGPU is law 1 on a GPU that ranks share: 12 steps
// (with DYNMO_LONG=1 50, and every size in every precision on every number of stages) with pruning
// and random migrations after every step on 1, 2 and 4 stages, and with two
// replicas. Losses, gradient norms and the final hash equal those of one stage bit
// for bit, in float32 and, since its kernels add in a fixed order too, in
// bfloat16. Pruned layers are dense, masked and CSR in turn. With head size 32
// attention is on matrix units.
func TestPlacementChangesNothingOnGPU(t *testing.T) {
	steps := 12
	if long {
		steps = 50
	}
	for _, precision := range []string{"f32", "bf16"} {
		for _, hidden := range []int{16, 64} {
			if !long && (precision == "f32") != (hidden == 16) {
				continue
			}
			c := small(t)
			c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", precision, true
			c.Model.Hidden, c.Model.Blocks, c.Train.Steps = hidden, 3, steps
			still := goRun(t, c, nil)
			if still.losses[0] <= still.losses[len(still.losses)-1] {
				t.Fatalf("%s: loss from %v to %v", precision, still.losses[0], still.losses[len(still.losses)-1])
			}
			if n := len(still.sparsity); n != 5 || math.Abs(still.sparsity[4]-0.9) > 1e-2 {
				t.Fatalf("%s: sparsities %v, want five up to 0.9", precision, still.sparsity)
			}
			for _, stages := range []int{2, 4} {
				if !long && (stages == 2) != (hidden == 16) {
					continue
				}
				c.Parallel.Stages = stages
				t.Run(fmt.Sprintf("%s/hidden=%d/P=%d", precision, hidden, stages), func(t *testing.T) {
					moved := goRun(t, c, scatter(uint64(stages)+2))
					if moved.moves < c.Train.Steps/2 {
						t.Errorf("only %d of %d steps moved layers", moved.moves, c.Train.Steps)
					}
					if at := moved.difference(still); at != "" {
						t.Errorf("differs from one stage at %s", at)
					}
				})
			}
		}
		if !long && precision == "f32" {
			continue
		}
		t.Run(precision+"/D=2", func(t *testing.T) {
			c := small(t)
			c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", precision, true
			c.Model.Blocks, c.Parallel.Replicas, c.Train.Steps = 2, 2, 9
			still := goRun(t, c, nil)
			c.Parallel.Stages = 2
			if at := goRun(t, c, scatter(2)).difference(still); at != "" {
				t.Errorf("differs from one stage at %s", at)
			}
		})
	}
}

// TestBalancersOnGPU lets the balancers move layers by what they measure on a
// GPU: whatever they decide, nothing but time changes.
func TestBalancersOnGPU(t *testing.T) {
	c := small(t)
	c.Device.Kind, c.Device.Share = "cuda", true
	c.Model.Blocks, c.Train.Steps = 4, 12
	still := goRun(t, c, nil)
	c.Parallel.Stages, c.Balance.Every = 3, "2"
	for _, balancer := range []string{"partition", "diffusion"} {
		c.Balance.Kind = balancer
		if at := goRun(t, c, nil).difference(still); at != "" {
			t.Errorf("%s: differs from one stage at %s", balancer, at)
		}
	}
}

// TestValidationOnGPU: validation losses are the same bits on one stage and on several,
// between steps whose passes are graphs, and change nothing.
func TestValidationOnGPU(t *testing.T) {
	c := validating(t)
	c.Device.Kind, c.Device.Share, c.Model.Blocks = "cuda", true, 4
	want := validate(t, c)
	without := c
	without.Data.Validation = ""
	if at := validate(t, without).difference(&want.run); at != "" || len(want.found) != 3 {
		t.Errorf("%v; with validation the run differs at %q", want.found, at)
	}
	c.Parallel.Stages, c.Schedule.Kind = 2, "zb-v"
	if got := validate(t, c); !maps.Equal(got.found, want.found) {
		t.Errorf("%v on two stages, %v on one", got.found, want.found)
	}
}

// TestExitsOnGPU: where the states of tokens that left go on, placement changes nothing,
// and losses are those on a CPU within 2 %: a confidence next to a threshold may fall on
// its other side.
func TestExitsOnGPU(t *testing.T) {
	c := exiting(t, "prune+exit")
	c.Model.Blocks, c.Train.Steps = 4, 8
	c.Assign("exit.propagate", true)
	c.Assign("exit.until", 4)
	cpu := goRun(t, c, nil)
	c.Device.Kind, c.Device.Share = "cuda", true
	still := goRun(t, c, nil)
	for i, want := range cpu.losses {
		if got := still.losses[i]; !(math.Abs(float64(got-want)) <= 0.02*float64(want)) {
			t.Errorf("step %d: loss %v, on the CPU %v", i, got, want)
		}
	}
	c.Parallel.Stages = 3
	if at := goRun(t, c, scatter(5)).difference(still); at != "" {
		t.Errorf("differs from one stage at %s", at)
	}
}

// TestGPUAgreesWithCPU compares losses of training on a GPU with those on a CPU:
// within 1e-3 in float32, 1 % in bfloat16, over 20 steps.
func TestGPUAgreesWithCPU(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps, c.Model.Blocks = "none", 20, 4
	cpu := goRun(t, c, nil)
	c.Device.Kind = "cuda"
	for precision, tolerance := range map[string]float64{"f32": 1e-3, "bf16": 1e-2} {
		c.Device.Precision = precision
		gpu := goRun(t, c, nil)
		for i, want := range cpu.losses {
			if got := gpu.losses[i]; !(math.Abs(float64(got-want)) <= tolerance*float64(want)) {
				t.Errorf("%s: step %d: loss %v, on the CPU %v", precision, i, got, want)
				break
			}
		}
	}
}

// TestSharedGPU wants ranks that share a GPU unasked to end with one error on
// all of them.
func TestSharedGPU(t *testing.T) {
	c := small(t)
	c.Device.Kind, c.Parallel.Stages = "cuda", 2
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	errors := make([]error, 2)
	_ = local.Run(2, func(tr comm.Transport) error {
		_, err := rankRun(c, tr, corpus, &run{}, nil)
		errors[tr.Rank()] = err
		return err
	})
	for rank, err := range errors {
		if err == nil || !strings.Contains(err.Error(), "device.share") || !strings.Contains(err.Error(), "ranks 0 and 1") {
			t.Errorf("rank %d: %v, want an error that names the ranks and device.share", rank, err)
		}
	}
}

// TestGPUOutOfMemory wants a model that is too large to be refused before it is made, with
// the GPU, what the model needs and what is free.
func TestGPUOutOfMemory(t *testing.T) {
	c := small(t)
	c.Device.Kind = "cuda"
	c.Model.Blocks, c.Model.Hidden = 1, 1<<17
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	err = local.Run(1, func(tr comm.Transport) error {
		_, err := rankRun(c, tr, corpus, &run{}, nil)
		return err
	})
	for _, want := range []string{"memory: ranks on host", "need 3457.00 GiB", "(GPU-", "wanted more parallel.stages"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
}

// TestLaw2OnGPU: a run that was saved and goes on from there on other stages has the
// losses and the hash of one that never ended, with weights in bfloat16 and their masters
// too.
func TestLaw2OnGPU(t *testing.T) {
	for _, precision := range []string{"f32", "bf16"} {
		if !long && precision == "f32" {
			continue // bfloat16 saves all that float32 does, and masters
		}
		c := small(t)
		c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", precision, true
		c.Model.Blocks, c.Parallel.Stages, c.Train.Steps = 2, 2, 9
		whole := goRun(t, c, nil)
		saved := part{dir: t.TempDir(), stop: 6}
		first, end := trainPart(t, c, saved)
		if end.Saved != 6 {
			t.Fatalf("%s: %+v", precision, end)
		}
		c.Parallel.Stages = 3
		then, _ := trainPart(t, c, part{from: saved.dir})
		if at := joined(first, then).difference(whole); at != "" {
			t.Errorf("%s: differs from an undisturbed run at %s", precision, at)
		}
	}
}

// TestResumeKeepsAlgorithms: a run that measured which algorithms make its products goes on
// with those, whatever it would measure now and on whichever stages: losses and the final
// hash are the same bits. One that measured nothing goes on so.
func TestResumeKeepsAlgorithms(t *testing.T) {
	c := small(t)
	c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", "bf16", true
	c.Model.Blocks, c.Parallel.Stages, c.Train.Steps = 1, 2, 3
	for _, tuned := range []bool{true, false} {
		c.Device.Tune = tuned
		saved := part{dir: t.TempDir(), stop: 1}
		trainPart(t, c, saved)
		var parts []*run
		for _, stages := range []int{2, 1} {
			again := c
			again.Parallel.Stages, again.Device.Tune = stages, stages != 2
			then, _ := trainPart(t, again, part{from: saved.dir})
			parts = append(parts, then)
		}
		if at := parts[1].difference(parts[0]); at != "" {
			t.Errorf("tuned %v: on one stage it goes on otherwise, at %s", tuned, at)
		}
	}
}

// TestSpreadExpertsOnGPU: experts that two replicas share out are saved, hashed and read on
// one replica.
func TestSpreadExpertsOnGPU(t *testing.T) {
	for _, precision := range []string{"f32", "bf16"} {
		if !long && precision == "f32" {
			continue
		}
		c := shared(t)
		c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", precision, true
		c.Model.Blocks, c.Parallel.Stages, c.Train.Steps = 2, 2, 5
		whole := goRun(t, c, nil)
		saved := part{dir: t.TempDir(), stop: 3}
		first, end := trainPart(t, c, saved)
		then, _ := trainPart(t, c, part{from: saved.dir})
		if at := joined(first, then).difference(whole); at != "" {
			t.Errorf("%s: differs from an undisturbed run at %s", precision, at)
		}
		c = reshard{1, 1}.on(c)
		c.Train.Steps = 3
		if then, _ := trainPart(t, c, part{from: saved.dir}); then.hash != end.Hash {
			t.Errorf("%s: on one replica state %s, saved as %s", precision, then.hash, end.Hash)
		}
	}
}

// TestPlasticityOnGPU: layers that are compared with references on the host freeze alike
// wherever they lie, and after a checkpoint.
func TestPlasticityOnGPU(t *testing.T) {
	for _, precision := range []string{"f32", "bf16"} {
		if !long && precision == "f32" {
			continue
		}
		c := plastic(t)
		c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", precision, true
		c.Model.Blocks, c.Train.Steps = 3, 9
		still := goRun(t, c, nil)
		if len(still.frozen) == 0 {
			t.Errorf("%s: no layer froze", precision)
		}
		c.Parallel.Stages = 2
		same(t, goRun(t, c, scatter(3)), still)
		saved := part{dir: t.TempDir(), stop: 5}
		first, _ := trainPart(t, c, saved)
		c.Parallel.Stages = 3
		then, _ := trainPart(t, c, part{from: saved.dir})
		if at := joined(first, then).difference(still); at != "" {
			t.Errorf("%s: saved after step 5: differs from one stage at %s", precision, at)
		}
	}
}

// TestSpreadPlacementOnGPU is law 1 of experts that two replicas share out, whose rows cross
// in mid-pass while gradients and activations are on their way.
func TestSpreadPlacementOnGPU(t *testing.T) {
	c := spread(small(t))
	c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", "f32", true
	c.Model.Blocks, c.Train.Steps, c.Dynamic.Kind = 3, 3, "moe+exit"
	still := goRun(t, c, nil)
	c.Parallel.Stages, c.Schedule.Kind = 3, "zb-h1"
	same(t, goRun(t, c, scatter(3)), still)
}
