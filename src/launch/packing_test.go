package launch

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/lab/study"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/sim"
)

// packings is a run with a list of its packings.
type packings struct {
	run
	packed []packedTo
}

// packedTo is a packing: the number of stages, and the first step that runs on them.
type packedTo struct{ step, stages int }

func (p *packings) Event(e record.Event) error {
	if e.Kind == record.Repack {
		var d record.Packed
		if err := e.Read(&d); err != nil {
			return err
		}
		p.packed = append(p.packed, packedTo{e.Step + 1, d.Stages})
	}
	return p.run.Event(e)
}

// packed trains with known times, and lets ranks leave.
func packed(t *testing.T, c config.Config) *packings {
	t.Helper()
	told := &packings{}
	trainKnown(t, c, told)
	return told
}

// toPack returns settings of a run that is pruned until fewer stages are enough.
func toPack(t *testing.T) config.Config {
	return small(t, `run.clock=virtual balance.every=auto train.steps=30 prune.start=6 prune.every=10 prune.times=2 prune.initial=0.5 prune.final=0.95 prune.csr_from=0.4
		model.blocks=8 model.hidden=24 parallel.microbatches=8 repack.kind=sustain`)
}

// TestPackingChangesNothing is law 1 where the model packs itself in mid-run.
func TestPackingChangesNothing(t *testing.T) {
	for i, kind := range []string{"1f1b", "interleaved"} {
		c := toPack(t)
		c.Schedule.Kind, c.Parallel.Replicas = kind, 1+i%2
		if i%2 == 1 {
			c.Repack.Kind, c.Balance.MemoryLimitBytes, c.Repack.Below = "first-fit", 1<<22, 0.9
			c.Repack.Stages = 2
		}
		c.Parallel.Stages = 1
		still := packed(t, c)
		c.Parallel.Stages = 4
		got := packed(t, c)
		if at := got.difference(&still.run); at != "" || got.hash == "" {
			t.Errorf("%s, %s: differs from one stage at %s", kind, c.Repack.Kind, at)
		}
		if len(got.packed) == 0 || len(still.packed) > 0 {
			t.Errorf("%s, %s: packed %v, on one stage %v", kind, c.Repack.Kind, got.packed, still.packed)
		}
	}
}

// TestSimulatorForetellsPackings: from a run's recorded costs, the simulator packs the model onto
// the same stages after the same changes of the model.
func TestSimulatorForetellsPackings(t *testing.T) {
	for _, kind := range []string{"1f1b", "zb-h1"} {
		c := toPack(t)
		c.Schedule.Kind, c.Parallel.Stages = kind, 4
		ran := packed(t, c)
		o := study.Options{Config: c, Fixed: search.Fixed(c), Network: sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes)}
		var series cost.Series
		for _, p := range ran.series {
			series = append(series, p.Costs())
		}
		run, err := study.Simulate(series, o)
		expect.OK(t, err)
		told := run.Tally.Packing()
		same := told != nil && told.Packings == len(ran.packed)
		for i := 0; same && i < told.Packings; i++ {
			next := told.Segments[i+1]
			late := ran.packed[i].step - next.Step
			same = next.Ranks == ran.packed[i].stages*c.Parallel.Replicas && late >= 0 && late < 10
		}
		if !same {
			t.Errorf("%s: packed %v, predicted %+v", kind, ran.packed, told)
		}
	}
}
