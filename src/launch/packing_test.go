package launch

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/data"
	"dynmo/src/device"
	cpudevice "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/prune"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/sim"
	"dynmo/src/study"
	"dynmo/src/tensor"
	"dynmo/src/train"
)

// packings keeps what packing a run tells, and its costs.
type packings struct {
	run
	series profile.Series
	packed []packedTo
}

// packedTo is a packing: the first step on so many stages.
type packedTo struct{ step, stages int }

func (p *packings) Costs(s profile.Phase) error {
	p.series = append(p.series, s)
	return nil
}

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

// trainPacking trains in known times, in which ranks may leave.
func trainPacking(t *testing.T, c config.Config) *packings {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	told := &packings{}
	expect.OK(t, local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		r, err := train.New(train.Setup{
			Config: c, World: comm.New(tr, comm.Options{Clock: clock}), Device: cpudevice.New(clock), Corpus: corpus,
			Backend: newKnown(ref.New(tensor.F32), clock, tr.Rank()), Stop: func() bool { return false }, Observe: told,
		})
		if err != nil {
			return err
		}
		defer r.Close()
		out, err := r.Loop()
		if tr.Rank() == 0 {
			told.hash = out.Hash
		}
		return err
	}))
	return told
}

// toPack is a run that is pruned until fewer stages do.
func toPack(t *testing.T) config.Config {
	c := small(t)
	c.Run.Clock, c.Balance.Every = "virtual", "auto"
	c.Train.Steps = 30
	c.Assign("prune.start", 6, "prune.every", 10, "prune.times", 2)
	c.Assign("prune.initial", 0.5, "prune.final", 0.95, "prune.csr_from", "0.4")
	c.Model.Blocks, c.Model.Hidden, c.Parallel.Microbatches = 8, 24, 8
	c.Repack.Kind = "sustain"
	return c
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
		still := trainPacking(t, c)
		c.Parallel.Stages = 4
		packed := trainPacking(t, c)
		if at := packed.difference(&still.run); at != "" || packed.hash == "" {
			t.Errorf("%s, %s: differs from one stage at %s", kind, c.Repack.Kind, at)
		}
		if len(packed.packed) == 0 || len(still.packed) > 0 {
			t.Errorf("%s, %s: packed %v, on one stage %v", kind, c.Repack.Kind, packed.packed, still.packed)
		}
	}
}

// TestSimulatorForetellsPackings: from the costs that a run has recorded the simulator
// packs it onto the same stages after the same changes of the model.
func TestSimulatorForetellsPackings(t *testing.T) {
	for _, kind := range []string{"1f1b", "zb-h1"} {
		c := toPack(t)
		c.Schedule.Kind, c.Parallel.Stages = kind, 4
		ran := trainPacking(t, c)
		o := study.Options{Config: c, Fixed: search.Fixed(c), Network: sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes)}
		var series cost.Series
		for _, p := range ran.series {
			series = append(series, p.Costs())
		}
		run, err := study.Simulate(series, o)
		expect.OK(t, err)
		told := run.Packings()
		same := len(told) == len(ran.packed) && len(told) > 0
		for i := 0; same && i < len(told); i++ {
			late := ran.packed[i].step - told[i].Step
			same = told[i].Stages == ran.packed[i].stages && late >= 0 && late < config.Of[prune.Settings](c).Every
		}
		if !same {
			t.Errorf("%s: packed %v, foretold %+v", kind, ran.packed, told)
		}
	}
}
