package sim_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/kind/exit"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/pipeline"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// experiment is a few steps that are both executed and simulated. Every block, microbatch and kind
// of work has random costs; ranks are unequal.
type experiment struct {
	plan  schedule.Schedule
	shape model.Config
	cuts  partition.Partition
	slow  []float64 // by stage
	delay comm.Delay
	link  sim.Link

	frozen int  // number of frozen layers at the start of the chain
	apart  bool // only the classifiers of exits train, with messages of the last layer
	alike  bool // all microbatches take the same time

	dtype tensor.DType // of weights and activations
}

// newExperiment draws a chain of blocks over the schedule's virtual stages.
func newExperiment(plan schedule.Schedule, seed uint64, delay float64) experiment {
	draw := random.Keyed(seed)
	e := experiment{
		plan: plan, delay: comm.Delay{Most: delay, Seed: seed}, link: sim.Link{Latency: 0.1, Bandwidth: 100},
		shape: model.Config{Blocks: 2 * plan.Map.Virtual(), Hidden: 2, Heads: 1, Sequence: 3, Vocab: 7, Seed: 1},
	}
	e.cuts = partitiontest.Random(draw, e.shape.Layers(), plan.Map.Virtual())
	for range plan.Map.Stages {
		e.slow = append(e.slow, 1+draw.Float64())
	}
	return e
}

// works reports whether a layer has a call that takes time: a block does, and an exit whose
// classifier trains.
func (e experiment) works(layer int, kind trace.Op) bool {
	d := e.shape.Chain()[layer]
	if kind == trace.F {
		return d.Block >= 0
	}
	return e.apart && d.Kind == model.Exit && kind == trace.W || !e.apart && d.Block >= 0 && layer >= e.frozen
}

// seconds returns the time of a layer for a microbatch, on a rank of speed 1. The ends of the chain
// take no time.
func (e experiment) seconds(layer, microbatch int, kind trace.Op) float64 {
	if !e.works(layer, kind) {
		return 0
	}
	if e.alike {
		microbatch = 0
	}
	return random.Keyed(uint64(layer), uint64(microbatch), uint64(kind)).ExpFloat64()
}

// calls returns the times of the layers of a stage, in the order of its list.
func (e experiment) calls(stage int) []float64 {
	var list []float64
	for _, in := range e.plan.Lists[stage] {
		lo, hi := e.cuts.Range(e.plan.Map.Place(stage, in.Chunk))
		for i := range hi - lo {
			layer := hi - 1 - i
			if in.Op == schedule.F {
				layer = lo + i
			}
			for _, kind := range map[schedule.Op][]trace.Op{schedule.F: {trace.F}, schedule.I: {trace.I}, schedule.W: {trace.W}, schedule.B: {trace.I, trace.W}}[in.Op] {
				if e.works(layer, kind) {
					list = append(list, e.seconds(layer, in.Microbatch, kind))
				}
			}
		}
	}
	return list
}

// exec returns kernels with known times. Products with a block's QKV matrix, one in each direction,
// take the seconds of calls in turn. If only classifiers train, their gradients do. All other calls
// take no time.
func (e experiment) exec(clock *device.Clock, calls *[]float64, slow float64) *model.Exec {
	dev := cpu.New(clock)
	return &model.Exec{Device: dev, Stream: dev.NewStream(), B: 1, T: e.shape.Sequence, Scale: 1,
		Backend: null.NewOf(e.dtype, clock, func(c *kernel.Call) float64 {
			if classifier := e.apart && c.O == 2 && c.Op == kernel.MatmulBackwardWeight; c.O != 3*e.shape.Hidden && !classifier {
				return 0
			}
			next := (*calls)[0]
			*calls = (*calls)[1:]
			return next * slow
		})}
}

// execute runs steps on ranks and returns the instructions of each step, by stage. Step n begins at
// the same time on all ranks.
func (e experiment) execute(steps int) ([][][]trace.Span, error) {
	out := make([][][]trace.Span, steps)
	for n := range out {
		out[n] = make([][]trace.Span, e.plan.Map.Stages)
	}
	err := local.Run(e.plan.Map.Stages, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause() // the executor's own time does not count, only known costs
		world := comm.New(tr, comm.Options{Clock: clock, Network: comm.Network{
			Latency: e.link.Latency, Bandwidth: e.link.Bandwidth, Delay: e.delay,
		}})
		alone, err := world.Split(tr.Rank(), 0)
		if err != nil {
			return err
		}
		var calls []float64
		x := e.exec(clock, &calls, e.slow[tr.Rank()])
		if err := x.Reserve(e.shape); err != nil {
			return err
		}
		s, err := model.NewStage(e.shape, e.plan.Map.Owners(e.cuts).Layers(tr.Rank()), x.Device, tensor.F32)
		if err != nil {
			return err
		}
		data := make([]int32, x.N())
		s.Freeze(func(layer int) bool { return layer < e.frozen })
		for _, l := range s.Layers {
			if e.apart {
				l.Freeze(func(p *model.Param) bool { return !p.Apart })
			}
		}
		r, err := pipeline.New(x, layout.New(e.cuts, e.plan, 1, layout.StageMajor), s, pipeline.Groups{Stages: world, Replicas: alone}, pipeline.Options{})
		if err != nil {
			return err
		}
		feed := func(int) ([]int32, []int32) { return data, data }
		for n := range out {
			calls = e.calls(tr.Rank())
			clock.Reach(begin(n))
			done, err := r.Step(feed)
			if err != nil {
				return err
			}
			if len(calls) > 0 {
				return fmt.Errorf("%d calls were not made", len(calls))
			}
			for _, span := range done.Instructions {
				span.Start, span.End = span.Start-begin(n), span.End-begin(n)
				out[n][tr.Rank()] = append(out[n][tr.Rank()], span)
			}
		}
		return nil
	})
	return out, err
}

// begin returns the start of a step: long after the end of the step before. It is a multiple of a
// power of two, so that subtracting it loses little precision.
func begin(step int) float64 { return float64(1+step) * (1 << 20) }

// simulate simulates step n.
func (e experiment) simulate(n int) sim.Result {
	m := e.plan.Map
	step := sim.Step{
		Schedule: e.plan, Number: n, Spans: true, Bytes: make([]int64, m.Virtual()),
		PerMicrobatch: make([][]cost.Stage, m.Virtual()),
		Network:       sim.Network{Node: e.link, Delay: e.delay, Slow: e.slow},
	}
	x := e.exec(device.NewVirtual(), nil, 1)
	for v := range m.Virtual() {
		lo, hi := e.cuts.Range(v)
		step.Bytes[v] = e.shape.Chain()[hi-1].Leaves().Bytes(x, x.N())
		step.PerMicrobatch[v] = make([]cost.Stage, e.plan.Microbatches)
		for mb := range step.PerMicrobatch[v] {
			c := &step.PerMicrobatch[v][mb]
			for l := lo; l < hi; l++ {
				c.Forward += e.seconds(l, mb, trace.F)
				c.Input += e.seconds(l, mb, trace.I)
				c.Weight += e.seconds(l, mb, trace.W)
			}
		}
	}
	return sim.Run(step)
}

// TestSimulatorIsThePipeline is law 4 on the virtual clock: every schedule takes the simulator's
// time. Every layer and microbatch has random costs, ranks are unequal, and messages have random
// delays. Where there is a layer that can freeze, half of the layers are frozen. The makespan
// agrees within 2 %. Nothing else is counted, so every start and end agrees up to rounding.
// DYNMO_LONG=1 adds 16 stages.
func TestSimulatorIsThePipeline(t *testing.T) {
	const steps = 2
	worst := 0.0
	sizes := []int{1, 2, 3, 8}
	if os.Getenv("DYNMO_LONG") == "1" {
		sizes = append(sizes, 16)
	}
	for _, stages := range sizes {
		for _, kind := range []schedule.Kind{
			schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved, schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV, schedule.KindZBInterleaved, schedule.KindList,
		} {
			for _, delay := range []float64{0, 4} {
				seed := uint64(stages)
				plan, err := newPlan(kind, stages)
				expect.OK(t, err)
				e := newExperiment(plan, seed, delay)
				if cut := e.cuts[plan.Map.Virtual()/2]; delay > 0 && cut > 1 { // the embedding alone has no cost
					e.frozen = cut + 1
				}
				executed, err := e.execute(steps)
				if err != nil {
					t.Fatalf("%s, %d stages: %v", kind, stages, err)
				}
				for n, spans := range executed {
					want := e.simulate(n)
					got := trace.Step{Stages: spans}.Summary()
					off := math.Abs(want.Makespan()/got.Makespan() - 1)
					if worst = max(worst, off); off > 0.02 {
						t.Errorf("%s, %d stages, delays to %v, step %d: simulated %v s, executed %v s", kind, stages, delay, n, want.Makespan(), got.Makespan())
					}
					for stage, list := range spans {
						if len(list) != len(want.Spans[stage]) {
							t.Fatalf("%s, %d stages, %d layers frozen: %d instructions, simulated %d", kind, stages, e.frozen, len(list), len(want.Spans[stage]))
						}
						for i, a := range list {
							if b := want.Spans[stage][i]; math.Abs(a.Start-b.Start)+math.Abs(a.End-b.End) > 1e-6 {
								t.Fatalf("%s, %d stages, delays to %v, step %d: stage %d executed %+v, simulated %+v", kind, stages, delay, n, stage, a, b)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("largest deviation of a makespan: %.2g", worst)
}

// TestClassifiersAlone: if only the classifiers of exits train, stages send each other no
// gradients. Every start and end is that of the pipeline.
func TestClassifiersAlone(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBV} {
		plan, err := newPlan(kind, 3)
		expect.OK(t, err)
		e := newExperiment(plan, 3, 4)
		e.apart, e.link.Bandwidth = true, 0
		e.shape = e.shape.With(exit.Exits{After: "2,4,5", Confidence: "classifier", Threshold: 2, Agree: true})
		e.cuts = partitiontest.Random(random.Keyed(3), e.shape.Layers(), plan.Map.Virtual())
		executed, err := e.execute(2)
		expect.OK(t, err)
		for n, spans := range executed {
			for stage, list := range e.simulate(n).Spans {
				if len(list) != len(spans[stage]) {
					t.Fatalf("%s, stage %d: %d instructions, simulated %d", kind, stage, len(spans[stage]), len(list))
				}
				for i, a := range spans[stage] {
					if b := list[i]; math.Abs(a.Start-b.Start)+math.Abs(a.End-b.End) > 1e-6 {
						t.Fatalf("%s, step %d: stage %d executed %+v, simulated %+v", kind, n, stage, a, b)
					}
				}
			}
		}
	}
}

// newPlan returns a schedule of two microbatches for each stage, at least 4. If chunks are
// interleaved, stages do not divide the microbatches.
func newPlan(kind schedule.Kind, stages int) (schedule.Schedule, error) {
	microbatches := max(4, 2*stages)
	switch kind {
	case schedule.KindInterleaved:
		return schedule.New(kind, stages, 3, microbatches+1)
	case schedule.KindZBInterleaved:
		return schedule.New(kind, stages, 2, stages+2)
	case schedule.KindZBV:
		return schedule.New(kind, stages, 2, microbatches)
	case schedule.KindList:
		m := map[int]partition.Map{ // a line, a loop and Vs
			2: partition.Line(2), 16: {Stages: 16, Chunks: 2}, 8: {Stages: 8, Chunks: 2, Vee: true}, 3: {Stages: 3, Chunks: 3, Vee: true}, 1: {Stages: 1, Chunks: 2, Vee: true},
		}[stages]
		o := schedule.ListOptions{Map: m, Microbatches: microbatches}
		for v := range m.Virtual() {
			o.Costs = append(o.Costs, cost.Stage{Forward: float64(2 + v%3), Input: 3, Weight: float64(1 + v%2)})
		}
		s, _ := schedule.Search(o, schedule.List(o), 20, 0)
		return s, nil
	}
	return schedule.New(kind, stages, 1, microbatches)
}
