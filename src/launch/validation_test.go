package launch

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/record"
	"dynmo/src/train"
)

// validated is a run and its validation losses, by step.
type validated struct {
	run
	found map[int]record.Float
	said  []string
	steps []record.Metrics
}

func (v *validated) Step(m record.Metrics) error {
	v.steps = append(v.steps, m)
	if m.Validated() {
		v.found[m.Step] = m.ValidationLoss
		if want := math.Exp(float64(m.ValidationLoss)); float64(m.ValidationPerplexity) != want && !math.IsNaN(want) || !(m.ValidationSeconds > 0) {
			return fmt.Errorf("step %d: perplexity %v, want %v; %v s", m.Step, m.ValidationPerplexity, want, m.ValidationSeconds)
		}
	}
	return v.run.Step(m)
}

func (v *validated) Say(line string) {
	if strings.Contains(line, "validation loss") {
		v.said = append(v.said, line)
	}
}

// validate trains, with random cuts after every step if there are several stages, and
// returns what was told.
func validate(t *testing.T, c config.Config) *validated {
	t.Helper()
	v := &validated{found: map[int]record.Float{}}
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	var moves scripted
	if c.Parallel.Stages > 1 {
		moves = scatter(7)
	}
	expect.OK(t, local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		r, err := readyRank(c, tr, corpus, v)
		if err != nil {
			return err
		}
		defer r.Close()
		if moves != nil {
			r.Balancer = &script{next: moves}
		}
		out, err := r.Loop()
		if tr.Rank() == 0 {
			v.hash = out.Hash
		}
		return err
	}))
	return v
}

// validating returns settings of a short run with validation data of their own, measured
// every two steps on 7 sequences, so that the last microbatch is one too many for them.
func validating(t *testing.T) config.Config {
	c := small(t)
	text := filepath.Join(t.TempDir(), "held.txt")
	expect.OK(t, os.WriteFile(text, []byte(strings.Repeat("a lazy fox is quick; the dog jumps. ", 20)), 0o600))
	c.Data.Validation = text
	c.Train.Steps, c.Train.ValidateEvery, c.Train.ValidateSequences = 5, 2, 7
	c.Assign("prune.start", 1, "prune.every", 1, "prune.times", 2)
	return c
}

// placed are the stages and schedules on which validation losses are compared.
var placed = []struct {
	kind   string
	chunks int
	stages int
}{
	{"1f1b", 1, 2}, {"1f1b", 1, 3}, {"zb-h2", 1, 4}, {"gpipe", 1, 4},
	{"zb-v", 2, 1}, {"zb-v", 2, 2}, {"zb-v", 2, 3}, {"zb-v", 2, 4},
	{"interleaved", 2, 2}, {"interleaved", 3, 2}, {"interleaved", 2, 4}, {"zb-interleaved", 3, 3},
}

// TestValidationChangesNothing: validation losses are the same bits on one stage and on
// several, on any map and while layers move and are pruned; and losses, norms and final
// weights are those of a run without validation.
func TestValidationChangesNothing(t *testing.T) {
	for replicas := 1; replicas <= 2; replicas++ {
		c := validating(t)
		c.Parallel.Replicas = replicas
		want := validate(t, c)
		if steps := slices.Sorted(maps.Keys(want.found)); !slices.Equal(steps, []int{1, 3, 4}) {
			t.Fatalf("validated after steps %v, want 1, 3 and 4", steps)
		}
		if first := want.said[0]; len(want.said) != 3 || !strings.HasPrefix(first, fmt.Sprintf(" validation loss at iteration 2 | lm loss value: %.6E | lm loss PPL: ", want.found[1])) {
			t.Errorf("lines %q", want.said)
		}
		without := c
		without.Data.Validation = ""
		if at := validate(t, without).difference(&want.run); at != "" {
			t.Errorf("D=%d: with validation the run differs at %s", replicas, at)
		}
		for k, p := range placed {
			if (k+replicas)%2 > 0 && !long {
				continue
			}
			c.Schedule.Kind, c.Schedule.Chunks, c.Parallel.Stages = p.kind, max(2, p.chunks), p.stages
			got := validate(t, c)
			if at := got.difference(&want.run); at != "" || !maps.Equal(got.found, want.found) {
				t.Errorf("%s: %v, want %v; the run differs at %q", variant(c), got.found, want.found, at)
			}
		}
	}
}

// TestValidationOfReplicas: replicas that share the sequences out find the loss that one
// finds, the same bits, of weights that do not change; of another number of sequences it is another.
func TestValidationOfReplicas(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps, c.Train.ValidateEvery = "none", 1, 0
	c.Optimizer.LR, c.Optimizer.MinLR = 1e-300, 0 // below the last digit of every weight
	want := validate(t, c).found[0]
	for _, replicas := range []int{2, 3, 5} {
		c.Parallel.Replicas, c.Parallel.Stages = replicas, 1+replicas%2
		if got := validate(t, c).found[0]; got != want || want == 0 {
			t.Errorf("D=%d: %v, want %v", replicas, got, want)
		}
	}
	c.Train.ValidateSequences = 20
	if got := validate(t, c).found[0]; got == want {
		t.Errorf("20 sequences: %v, as of 7", got)
	}
}

// TestHeldOutShare: a share of a corpus is validated on, and not trained on.
func TestHeldOutShare(t *testing.T) {
	c := validating(t)
	whole := c
	c.Data.Validation, whole.Data.Validation = "0.2", ""
	got, other := validate(t, c), validate(t, whole)
	if len(got.found) != 3 || got.difference(&other.run) != "step 0" {
		t.Errorf("%v; differs from training on all at %q", got.found, got.difference(&other.run))
	}
}

// timed trains on known costs, whatever else the ranks do, on the virtual clock. Rank 1
// is asked to stop in a step, unless that is negative.
func timed(t *testing.T, c config.Config, stop int) []record.Metrics {
	t.Helper()
	return timedBy(t, c, stop, func(call *kernel.Call) float64 {
		if call.O == c.Model.Vocab { // of the head, which the first cuts do not know
			return 8e-3
		}
		return 1e-3
	})
}

// timedBy is timed, with what calls take.
func timedBy(t *testing.T, c config.Config, stop int, cost func(*kernel.Call) float64) []record.Metrics {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	v := &validated{found: map[int]record.Float{}}
	expect.OK(t, local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause()
		step := -1
		r, err := train.New(train.Setup{
			Config: c, World: comm.New(tr, comm.Options{Clock: clock}), Device: cpu.New(clock), Corpus: corpus,
			Backend: null.New(clock, cost),
			Stop:    func() bool { step++; return stop >= 0 && step >= stop && tr.Rank() == 1 }, Observe: v,
		})
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = r.Loop()
		return err
	}))
	return v.steps
}

// TestValidationIsInNoTime: nothing that is measured of steps, and no decision, changes.
func TestValidationIsInNoTime(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps = "none", 12
	c.Parallel.Stages, c.Balance.Every = 4, "3"
	with := timed(t, c, -1)
	c.Data.Validation = ""
	without := timed(t, c, -1)
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

// TestValidationKeepsStagesBusy: validation on P stages that take as long for a microbatch
// takes that once for each microbatch, and P-1 times until the last stage has begun.
func TestValidationKeepsStagesBusy(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps, c.Train.ValidateSequences = "none", 2, 64
	c.Balance.Kind, c.Model.Blocks, c.Parallel.Stages = "uniform", 4, 4
	passes := 64/c.Parallel.MicrobatchSize + 3
	block := func(call *kernel.Call) float64 {
		if call.O == 3*c.Model.Hidden { // one product a block and direction
			return 1e-3
		}
		return 0
	}
	for _, m := range timedBy(t, c, -1, block) {
		if want := 1e-3 * float64(passes); m.Validated() && math.Abs(float64(m.ValidationSeconds)/want-1) > 0.02 {
			t.Errorf("validation took %v s, want %v s", m.ValidationSeconds, want)
		}
	}
}

// TestValidationIsLeftOut: a run that is asked to stop does so without it; where the loss
// is not finite, no other is looked for.
func TestValidationIsLeftOut(t *testing.T) {
	c := validating(t)
	c.Dynamic.Kind, c.Train.Steps, c.Parallel.Stages = "none", 6, 2
	for stop, want := range map[int][]int{-1: {1, 3, 5}, 3: {1}, 4: {1, 3}, 5: {1, 3, 5}} {
		var got []int
		for _, m := range timed(t, c, stop) {
			if m.Validated() {
				got = append(got, m.Step)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("asked to stop in step %d: validated after steps %v, want %v", stop, got, want)
		}
	}
	c.Optimizer.LR, c.Optimizer.Warmup, c.Train.ValidateEvery = 1e30, 0, 1
	v := &validated{found: map[int]record.Float{}}
	if err := trainLocally(t, c, v, func(*rank) error { return nil }); err == nil || !strings.Contains(err.Error(), "not finite") {
		t.Fatalf("error %v, want a loss that is not finite", err)
	}
	if last := v.steps[len(v.steps)-1]; last.Validated() || len(v.found) != len(v.steps)-1 {
		t.Errorf("validated after %d of %d steps, after the last: %v", len(v.found), len(v.steps), last.Validated())
	}
}
