package launch

import (
	"slices"
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

// decided is after which steps a run decided.
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

// knownCosts trains a part of a run on the virtual clock, on known costs, whatever else the
// ranks do, and returns after which steps it decided. Rank 0 is asked to stop in a step,
// unless that is negative.
func knownCosts(t *testing.T, c config.Config, dir, from string, stop int) []int {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	d := &decided{}
	expect.OK(t, local.Run(c.Parallel.Stages, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause()
		step := 0
		r, err := train.New(train.Setup{
			Config: c, World: comm.New(tr, comm.Options{Clock: clock}), Device: cpu.New(clock), Corpus: corpus, Observe: d, RunDir: dir, Resume: from,
			Backend: null.New(clock, func(call *kernel.Call) float64 {
				if call.O == c.Model.Vocab {
					return 8e-3
				}
				return 1e-3
			}),
			Stop: func() bool { step++; return step-1 == stop && tr.Rank() == 0 },
		})
		if err != nil {
			return err
		}
		defer r.Close()
		step = r.Resumed().Step
		if why := r.Resumed().Anew; why != "" {
			t.Errorf("begins anew: %s", why)
		}
		_, err = r.Loop()
		return err
	}))
	return d.steps
}

// TestResumeDecides: a run that ended and went on decides after the same steps as one that
// never ended, as its balancer counts them.
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
