package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/record"
	"dynmo/src/train"
)

// decided has the steps after which a run decided.
type decided struct {
	run
	steps []int
}

func (d *decided) Event(e record.Event) error {
	if e.Kind == "balance" {
		d.steps = append(d.steps, e.Step)
	}
	return d.run.Event(e)
}

// knownCosts trains a part of a run with known costs. It returns the steps after which the run
// decided. If stop is not negative, rank 0 is asked to stop in that step.
func knownCosts(t *testing.T, c config.Config, dir, from string, stop int) []int {
	t.Helper()
	d, step := &decided{}, 0
	made(t, c, d, func(rank int, clock *device.Clock, s *train.Setup) {
		s.RunDir, s.Resume, s.Backend = dir, from, headOf8(clock, c)
		if rank == 0 {
			s.Stop = func() bool { step++; return step-1 == stop }
		}
	}, func(rank int, r *train.Rank) {
		if why := r.Resumed().Anew; why != "" {
			t.Errorf("begins anew: %s", why)
		}
		if rank == 0 {
			step = r.Resumed().Step
		}
	})
	return d.steps
}

// headOf8 is a backend whose calls take 1 ms, and 8 ms for the head. The first cuts do not expect
// that.
func headOf8(clock *device.Clock, c config.Config) kernel.Backend {
	clock.Pause()
	return null.New(clock, func(call *kernel.Call) float64 {
		if call.O == c.Model.Vocab {
			return 8e-3
		}
		return 1e-3
	})
}

// TestResumeDecides: a resumed run decides after the same steps as a run without interruption, as
// its balancer counts them.
func TestResumeDecides(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps, c.Parallel.Stages, c.Balance.Every = "none", 20, 4, "7"
	whole := knownCosts(t, c, "", "", -1)
	if want := []int{1, 8, 15}; !slices.Equal(whole, want) {
		t.Fatalf("decided after steps %v, want %v", whole, want)
	}
	for _, stop := range []int{0, 1, 5} {
		dir := t.TempDir()
		parts := append(knownCosts(t, c, dir, "", stop), knownCosts(t, c, "", dir, -1)...)
		if !slices.Equal(parts, whole) {
			t.Errorf("stopped in step %d: decided after steps %v, want %v", stop, parts, whole)
		}
	}
}

// TestResumeGoesOnBalancing: if nothing changed, measurements and the balancer continue after a
// resume. Otherwise a note says why not. Losses are the same in both cases.
func TestResumeGoesOnBalancing(t *testing.T) {
	c := small(t)
	c.Parallel.Stages, c.Train.Steps = 3, 12
	whole := goRun(t, c, nil)
	saved := session{dir: t.TempDir(), stop: 7}
	first := saved.train(t, c)
	for want, change := range map[string]func(*config.Config){
		"":                                     func(c *config.Config) { c.Train.LogEvery++ },
		"[parallel] of the checkpoint differs": func(c *config.Config) { c.Parallel.Stages = 2 },
		"[balance] of the checkpoint differs":  func(c *config.Config) { c.Balance.Every = "3" },
	} {
		c := c
		change(&c)
		then := session{from: saved.dir}
		second := then.train(t, c)
		if at := joined(first, second).difference(whole); at != "" || then.resumed.Step != 7 || then.resumed.Anew != want {
			t.Errorf("differs at %q, resumed %+v, want %q", at, then.resumed, want)
		}
	}
	scripted := session{from: saved.dir, dir: t.TempDir(), balancer: scattered(3)}
	if scripted.train(t, c); scripted.outcome.Saved != 12 {
		t.Errorf("%+v", scripted.outcome)
	}
	then := session{from: scripted.dir}
	c.Train.Steps++
	if then.train(t, c); then.resumed.Anew != `the checkpoint's state: parts: ["profiler"], want ["balancer" "profiler"]` {
		t.Errorf("after a run of another balancer: %+v", then.resumed)
	}
}

// TestResumeSkipsDamage: every rank skips a damaged checkpoint and reports the reason. A run
// without any checkpoint begins anew. A run with only damaged ones does not.
func TestResumeSkipsDamage(t *testing.T) {
	expect.NewFault(t, "F06", "")
	c := small(t)
	c.Parallel.Stages, c.Checkpoint.Every, c.Train.Steps, c.Checkpoint.Keep = 3, "2", 7, 9
	dir := t.TempDir()
	first := session{dir: dir}
	whole := first.train(t, c)
	if first.outcome.Saved != 7 {
		t.Fatalf("%+v", first.outcome)
	}
	all, _, err := checkpoint.All(dir)
	expect.OK(t, err)
	if len(all) < 3 {
		t.Fatalf("%d checkpoints of 7 steps, one every 2", len(all))
	}
	for i, c := range all[:2] {
		path := filepath.Join(c.Dir, fmt.Sprintf("layer-%05d.safetensors", 3*i))
		text, err := os.ReadFile(path)
		expect.OK(t, err)
		text[len(text)-1] ^= 1
		expect.OK(t, os.WriteFile(path, text, 0o600))
	}
	then := (&session{from: dir}).train(t, c)
	if then.hash != whole.hash || len(then.losses) != 7-all[2].Step {
		t.Errorf("went on for %d steps to hash %s, want %d and %s", len(then.losses), then.hash, 7-all[2].Step, whole.hash)
	}
	anew := (&session{from: t.TempDir()}).train(t, c)
	if anew.hash != whole.hash || len(anew.losses) != 7 {
		t.Errorf("without a checkpoint: %d steps, hash %s", len(anew.losses), anew.hash)
	}
	refused := func(c config.Config, want string) {
		if err := (&session{from: dir}).try(t, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	other := c
	other.Model.Blocks--
	refused(other, "model.blocks: 8 in the checkpoint, 7 here")
	for _, c := range all {
		expect.OK(t, os.WriteFile(filepath.Join(c.Dir, checkpoint.ManifestFile), nil, 0o600))
	}
	refused(c, "no whole checkpoint")
}
