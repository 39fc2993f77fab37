package profile_test

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/kind/moe"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// perRow makes every row of an expert cost one second in each direction and everything
// else nothing: each of the three has one product with the matrix of 2·20 rows.
func perRow(c *kernel.Call) float64 {
	switch c.Op {
	case kernel.MatmulForward, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight:
		if c.O == 40 {
			return float64(c.N)
		}
	}
	return 0
}

// near allows for the rounding of a clock's sums.
func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestFullestReplicaSetsTheTime: all tokens go to the experts of one of two replicas. The other
// waits in its passes. Layers cost the seconds of the fuller replica, and work counts its tokens.
// Null kernels send all tokens to the first experts.
func TestFullestReplicaSetsTheTime(t *testing.T) {
	c := model.Config{
		Family: "llama", Blocks: 2, Hidden: 16, Heads: 2, Sequence: 8, Vocab: 16, Seed: 1, Intermediate: 20, NormEps: 1e-5,
		Rope: model.Rope{Base: 1e4}, Spread: 2,
	}.With(moe.Experts{Count: 4, Top: 2})
	plan, err := schedule.New(schedule.Kind1F1B, 2, 1, 3)
	expect.OK(t, err)
	where := layout.New(partition.Partition{0, 2, 4}, plan, 2, layout.StageMajor)
	expect.OK(t, local.Run(4, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		clock.Pause() // only known costs count
		world := comm.New(tr, comm.Options{Clock: clock})
		stage, replica := tr.Rank()/2, tr.Rank()%2
		stages, err := world.Split(replica, stage)
		if err != nil {
			return err
		}
		replicas, err := world.Split(stage, replica)
		if err != nil {
			return err
		}
		dev := cpu.New(clock)
		x := &model.Exec{Device: dev, Backend: null.New(clock, perRow), Stream: dev.NewStream(), B: 1, T: c.Sequence, Scale: 1}
		if err := x.Reserve(c); err != nil {
			return err
		}
		shape := c
		shape.Replica = replica
		s, err := model.NewStage(shape, where.Owners().Layers(stage), dev, tensor.F32)
		if err != nil {
			return err
		}
		r, err := pipeline.New(x, where, s, pipeline.Groups{Stages: stages, Replicas: replicas}, pipeline.Options{})
		if err != nil {
			return err
		}
		data := make([]int32, x.N())
		done, err := r.Step(func(int) ([]int32, []int32) { return data, data })
		if err != nil {
			return err
		}
		const rows = 2 * 2 * 8 // of two replicas, by two choices of each of the tokens
		seconds, tokens := []float64{rows, 0}[replica], []int{rows / 2, 0}[replica]
		for _, span := range done.Spans {
			block := span.Layer == 1 || span.Layer == 2
			if span.Op.Pipeline() && block && (!near(span.Seconds(), seconds) || span.Op == trace.F && span.Tokens != tokens) {
				t.Errorf("replica %d: %+v, want %v s of computing, %d tokens in a forward", replica, span, seconds, tokens)
			}
			if waits := block && replica == 1 && (span.Op == trace.F || span.Op == trace.I); waits && span.Waited < rows-1e-9 {
				t.Errorf("replica %d: %+v, want at least %v s of waiting", replica, span, rows)
			}
		}
		p := profile.Profiler{Stages: stages, Replicas: replicas, Counts: dynamic.AllCounts(config.Default())}
		seen, err := p.Measure(x, s, where, done, profile.Own{Joules: -1}, dynamic.Change{})
		if err != nil {
			return err
		}
		if tr.Rank() > 0 {
			return nil // only the first rank knows
		}
		is := func(s cost.Stage) bool { return near(s.Forward, rows) && near(s.Input, rows) && near(s.Weight, rows) }
		for l := 1; l <= 2; l++ {
			if slices.ContainsFunc(seen.Samples[l], func(s cost.Stage) bool { return !is(s) }) || !slices.Equal(seen.Work[l], []float64{2, 2, 2}) {
				t.Errorf("layer %d: %v of work %v, want %v s a pass of work 2", l, seen.Samples[l], seen.Work[l], rows)
			}
			if got := seen.Layers[l].Stage(); !is(got) {
				t.Errorf("layer %d costs %v, want %v s a pass", l, got, rows)
			}
		}
		return nil
	}))
}
