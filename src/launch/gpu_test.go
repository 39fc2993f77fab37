//go:build cuda && cgo

package launch

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/expect"
)

// onGPU are the settings of ranks that share a GPU, and of models that the emulator works
// through in a second.
const onGPU = "device.kind=cuda device.share=true parallel.microbatch_size=1 train.steps=6 model.blocks=3 freeze.step=2 freeze.tolerance=0.99 exit.start=1 exit.until=4 "

// TestLawsOnGPU is TestLaws on a GPU that ranks share. Passes between validations are graphs.
// Layers move at random, or where a balancer wants them by its measurements, and the run is saved
// and continues elsewhere. Kernels add in a fixed order in bfloat16 too, whose masters are saved,
// hashed and read. Pruned layers are dense, masked and CSR in turn. Layers that are compared with
// references on the host freeze alike. Losses in float32 are those of a CPU within 1e-3. Where
// tokens leave they agree within 2 %: a confidence next to a threshold may fall on its other side.
// DYNMO_LONG=1 runs all rows in both precisions and in every variant.
func TestLawsOnGPU(t *testing.T) {
	for i, r := range []struct {
		name, precision, sets string
		within                float64 // of a CPU's losses; 0: not compared
		stages                int
		long                  bool // only with DYNMO_LONG=1
	}{
		{"prune", "f32", "parallel.microbatch_size=2", 1e-3, 2, false},           // the last microbatch of validation is one sequence too long
		{"prune", "bf16", "model.hidden=64 parallel.replicas=2", 1e-2, 4, false}, // heads of 32 are on matrix units
		{"prune to blocks", "bf16", "prune.csr_from=0.3", 0, 3, false},
		{"prune, exit, propagated", "f32", "", 0.02, 3, false},
		{"freeze, then thaw", "bf16", "", 0, 2, false},
		{"spread, exit", "f32", "", 0, 3, true}, // rows cross in mid-pass while gradients and activations are on their way
		{"spread", "bf16", "", 0, 2, false},
		{"none", "bf16", "", 1e-2, 3, true},
		{"rounded sums", "bf16", "", 0, 2, false},
		{"sharded", "bf16", "", 0, 3, false},
		{"sharded, prune", "bf16", "", 0, 2, false},
		{"sharded, prune to blocks", "bf16", "", 0, 3, true},
		{"sharded, freeze, exit, mod", "bf16", "", 0, 3, true},
		{"sharded, spread", "bf16", "", 0, 2, true},
	} {
		for v := range variants {
			for _, precision := range []string{"f32", "bf16"} {
				if !long && (r.long || v != 0 && v != 3 || v/3 != i%2 || precision != r.precision) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", r.name, precision, v), func(t *testing.T) {
					c := find(t, r.name).settings(t, v, onGPU, "train.validate_every=3 device.precision="+precision, r.sets)
					whole := c
					whole.Optimizer.Shard = false
					still := goRun(t, whole, nil)
					if strings.HasPrefix(r.name, "freeze") && len(still.frozen) == 0 {
						t.Error("no layer froze")
					}
					if r.within > 0 {
						c := c
						c.Device.Kind, c.Device.Precision = "cpu", "f32"
						for step, want := range goRun(t, c, nil).losses {
							if got := still.losses[step]; !(math.Abs(float64(got-want)) <= max(r.within, map[string]float64{"bf16": 1e-2}[precision])*float64(want)) {
								t.Errorf("step %d: loss %v, on the CPU %v", step, got, want)
							}
						}
					}
					c.Parallel.Stages, c.Schedule.Kind = r.stages, []string{"1f1b", "zb-h1", "zb-v"}[i%3]
					if c.Validate() != nil {
						c.Schedule.Kind = "1f1b"
					}
					if i%4 > 0 || long {
						moves(t, []config.Config{c}, uint64(i%6), still) // seeds that move these few layers often
					}
					if i%4 == 0 || long {
						c.Balance.Kind, c.Balance.Every = []string{"partition", "diffusion"}[i/4%2], "2"
						same(t, goRun(t, c, nil), still)
					}
					saved := session{dir: t.TempDir(), stop: 4, balancer: scattered(uint64(i))}
					first := saved.train(t, c)
					if c.Parallel.Stages = 5 - r.stages; i%2 == 1 && !long {
						c.Parallel.Stages = 1
					}
					if c.Validate() != nil {
						c.Schedule.Kind = "1f1b"
					}
					then := session{from: saved.dir, balancer: scattered(5)}
					if at := joined(first, then.train(t, c)).difference(still); at != "" || saved.outcome.Saved != 4 {
						t.Errorf("saved after step %d, differs from an undisturbed run at %s", saved.outcome.Saved, at)
					}
				})
			}
		}
	}
}

// TestSpreadExpertsReshardOnGPU: experts that two replicas divided are read on one replica.
func TestSpreadExpertsReshardOnGPU(t *testing.T) {
	c := find(t, "spread").settings(t, 0, onGPU, "train.steps=3 device.precision=bf16 parallel.stages=2 parallel.microbatches=2")
	c.Data.Validation = ""
	saved := session{dir: t.TempDir()}
	was := saved.train(t, c)
	if then := (&session{from: saved.dir}).train(t, reshard{1, 1, ""}.on(c)); then.hash != was.hash {
		t.Errorf("on one replica state %s, saved as %s", then.hash, was.hash)
	}
}

// TestSharedGPU: ranks that share a GPU without permission end with the same error on all ranks.
func TestSharedGPU(t *testing.T) {
	c := small(t)
	c.Device.Kind, c.Parallel.Stages = "cuda", 2
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	errors := make([]error, 2)
	_ = local.Run(2, func(tr comm.Transport) error {
		_, err := newRank(c, tr, Hooks{Stop: func() bool { return false }}, func() (*data.Corpus, error) { return corpus, nil })
		errors[tr.Rank()] = err
		return err
	})
	for rank, err := range errors {
		if err == nil || !strings.Contains(err.Error(), "device.share") || !strings.Contains(err.Error(), "ranks 0 and 1") {
			t.Errorf("rank %d: %v, want an error that names the ranks and device.share", rank, err)
		}
	}
}

// TestGPUOutOfMemory: a model is too large, but not so large that it is refused before it is made.
// The error names the GPU, the bytes that the model needs and the bytes that are free.
func TestGPUOutOfMemory(t *testing.T) {
	c := small(t)
	c.Device.Kind = "cuda"
	c.Model.Blocks, c.Model.Hidden = 1, 1<<17
	c.Parallel.Stages = 1
	err := (&session{}).try(t, c)
	for _, want := range []string{"memory: ranks on host", "need 3457.00 GiB", "(GPU-", "wanted more parallel.stages"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
}

// TestResumeKeepsAlgorithms: a run that measured algorithms for its products resumes with these,
// whatever it would measure now, on any stages. Losses and the final hash are the same bits. A run
// that measured none resumes without any.
func TestResumeKeepsAlgorithms(t *testing.T) {
	c := small(t)
	c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", "bf16", true
	c.Model.Blocks, c.Parallel.Stages, c.Train.Steps = 1, 2, 3
	for _, tuned := range []bool{true, false} {
		c.Device.Tune = tuned
		saved := session{dir: t.TempDir(), stop: 1}
		saved.train(t, c)
		var parts []*run
		for _, stages := range []int{2, 1} {
			again := c
			again.Parallel.Stages, again.Device.Tune = stages, stages != 2
			parts = append(parts, (&session{from: saved.dir, balancer: scattered(uint64(stages))}).train(t, again))
		}
		if at := parts[1].difference(parts[0]); at != "" {
			t.Errorf("tuned %v: on one stage it goes on otherwise, at %s", tuned, at)
		}
	}
}
