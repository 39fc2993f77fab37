package launch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/record"
	"dynmo/src/train"
)

// validated is a run and the results of its validation.
type validated struct {
	run
	said []string
}

func (v *validated) Say(line string) {
	if strings.Contains(line, "validation loss") {
		v.said = append(v.said, line)
	}
}

// after returns the steps after which a run was validated.
func (r *run) after() (steps []int) {
	for _, m := range r.metrics {
		if m.Validated() {
			steps = append(steps, m.Step)
		}
	}
	return steps
}

// validating returns settings of a short run with validation data of its own. It validates every
// two steps on 7 sequences, so that the last microbatch has one sequence too many.
func validating(t *testing.T) config.Config {
	c := small(t)
	text := filepath.Join(t.TempDir(), "held.txt")
	expect.OK(t, os.WriteFile(text, []byte(strings.Repeat("a lazy fox is quick; the dog jumps. ", 20)), 0o600))
	c.Data.Validation = text
	c.Train.Steps, c.Train.ValidateEvery, c.Train.ValidateSequences = 5, 2, 7
	c.Assign("prune.start", 1, "prune.every", 1, "prune.times", 2)
	return c
}

// TestValidationChangesNothing: losses, norms and final weights are those of a run without
// validation, whose losses TestLaws compares. A share of a corpus is validated on, and not
// trained on.
func TestValidationChangesNothing(t *testing.T) {
	for replicas := 1; replicas <= 2; replicas++ {
		c := validating(t)
		c.Parallel.Replicas = replicas
		v := &validated{}
		want := (&session{watch: v}).train(t, c)
		if steps := want.after(); !slices.Equal(steps, []int{1, 3, 4}) {
			t.Fatalf("validated after steps %v, want 1, 3 and 4", steps)
		}
		if first := v.said[0]; len(v.said) != 3 || !strings.HasPrefix(first, fmt.Sprintf(" validation loss at iteration 2 | lm loss value: %.6E | lm loss PPL: ", want.validation[0])) {
			t.Errorf("lines %q", v.said)
		}
		c.Data.Validation = ""
		without := goRun(t, c, nil)
		if without.validation = want.validation; without.difference(want) != "" {
			t.Errorf("D=%d: with validation the run differs at %s", replicas, without.difference(want))
		}
		c.Data.Validation = "0.2"
		if got := goRun(t, c, nil); len(got.validation) != 3 || got.difference(without) != "step 0" {
			t.Errorf("%v; differs from training on all at %q", got.validation, got.difference(without))
		}
	}
}

// TestValidationOfReplicas: replicas that divide the sequences find the same loss as one replica,
// to the bit, with constant weights. With another number of sequences the loss differs.
func TestValidationOfReplicas(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps, c.Train.ValidateEvery = "none", 1, 0
	c.Optimizer.LR, c.Optimizer.MinLR = 1e-300, 0 // too small to change any weight
	want := goRun(t, c, nil).validation[0]
	for _, replicas := range []int{2, 3, 5} {
		c.Parallel.Replicas, c.Parallel.Stages = replicas, 1+replicas%2
		if got := goRun(t, c, nil).validation[0]; got != want || want == 0 {
			t.Errorf("D=%d: %v, want %v", replicas, got, want)
		}
	}
	c.Train.ValidateSequences = 20
	if got := goRun(t, c, nil).validation[0]; got == want {
		t.Errorf("20 sequences: %v, as of 7", got)
	}
}

// timed trains with known costs on the virtual clock, so other work does not matter. If stop is not
// negative, rank 1 is asked to stop in that step.
func timed(t *testing.T, c config.Config, stop int, backend func(*device.Clock, config.Config) kernel.Backend) *run {
	t.Helper()
	return made(t, c, &run{}, func(rank int, clock *device.Clock, s *train.Setup) {
		step := -1
		s.Backend, s.Stop = backend(clock, c), func() bool { step++; return stop >= 0 && step >= stop && rank == 1 }
	}, nil)
}

// TestValidationIsInNoTime: validation changes no measurement of steps and no decision.
func TestValidationIsInNoTime(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps = "none", 12
	c.Parallel.Stages, c.Balance.Every = 4, "3"
	with := timed(t, c, -1, headOf8).metrics
	c.Data.Validation = ""
	without := timed(t, c, -1, headOf8).metrics
	moved := false
	for i, m := range with {
		o := without[i]
		for name, pair := range map[string][2]record.Float{
			"step seconds": {m.StepSeconds, o.StepSeconds}, "balancing": {m.BalanceSeconds, o.BalanceSeconds}, "makespan": {m.Makespan, o.Makespan},
			"bottleneck": {m.Bottleneck, o.Bottleneck}, "bubble ratio": {m.BubbleRatio, o.BubbleRatio}, "predicted": {m.Predicted, o.Predicted},
		} {
			if math.Abs(float64(pair[0]-pair[1])) > 1e-9 {
				t.Errorf("step %d: %s %v with validation, %v without", i, name, pair[0], pair[1])
			}
		}
		if !slices.Equal(m.Cuts, o.Cuts) || !slices.Equal(m.BytesPerStage, o.BytesPerStage) {
			t.Errorf("step %d: cuts %v and bytes %v, without validation %v and %v", i, m.Cuts, m.BytesPerStage, o.Cuts, o.BytesPerStage)
		}
		moved = moved || !slices.Equal(m.Cuts, with[0].Cuts)
		if wanted := i%2 == 1; m.Validated() != wanted {
			t.Errorf("step %d: validated: %v", i, m.Validated())
		}
	}
	if !moved {
		t.Error("no layer moved")
	}
}

// TestValidationKeepsStagesBusy: on P stages that all take time t for a microbatch, validation of M
// microbatches takes (M + P - 1)·t.
func TestValidationKeepsStagesBusy(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps, c.Train.ValidateSequences = "none", 2, 64
	c.Balance.Kind, c.Model.Blocks, c.Parallel.Stages = "uniform", 4, 4
	passes := 64/c.Parallel.MicrobatchSize + 3
	block := func(clock *device.Clock, c config.Config) kernel.Backend {
		clock.Pause()
		return null.New(clock, func(call *kernel.Call) float64 {
			if call.O == 3*c.Model.Hidden { // one product for each block and direction
				return 1e-3
			}
			return 0
		})
	}
	for _, m := range timed(t, c, -1, block).metrics {
		if want := 1e-3 * float64(passes); m.Validated() && math.Abs(float64(m.ValidationSeconds)/want-1) > 0.02 {
			t.Errorf("validation took %v s, want %v s", m.ValidationSeconds, want)
		}
	}
}

// TestValidationIsLeftOut: a run that is asked to stop ends without validation. So does a run whose
// loss is not finite.
func TestValidationIsLeftOut(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps, c.Parallel.Stages = "none", 6, 2
	for stop, want := range map[int][]int{-1: {1, 3, 5}, 3: {1}, 4: {1, 3}, 5: {1, 3, 5}} {
		if got := timed(t, c, stop, headOf8).after(); !slices.Equal(got, want) {
			t.Errorf("asked to stop in step %d: validated after steps %v, want %v", stop, got, want)
		}
	}
	c.Optimizer.LR, c.Optimizer.Warmup, c.Train.ValidateEvery = 1e30, 0, 1
	v := &run{}
	if err := (&session{watch: v}).try(t, c); err == nil || !strings.Contains(err.Error(), "train.on_nan") {
		t.Fatalf("error %v, want a loss that is not finite", err)
	}
	if last := v.metrics[len(v.metrics)-1]; last.Validated() || len(v.validation) != len(v.metrics)-1 {
		t.Errorf("validated after %d of %d steps, after the last: %v", len(v.validation), len(v.metrics), last.Validated())
	}
}
