package pipeline_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/null"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Seconds in TestInstructionSpans, besides one for each direction of a block.
const (
	feedSeconds = 1. / 2
	copySeconds = 1. / 4
	waitSeconds = 1000.

	rounding = 1e-9
)

// slowCopies is a stream whose copies take time.
type slowCopies struct {
	device.Stream
	clock *device.Clock
}

func (s slowCopies) Copy(dst, src tensor.Mem) {
	s.clock.Advance(copySeconds)
	s.Stream.Copy(dst, src)
}

// slowBuffers is a transport whose messages of the schedule leave their buffers
// only when somebody waits for that, which takes time.
type slowBuffers struct {
	comm.Transport
	clock *device.Clock
}

func (s slowBuffers) Isend(to, tag int, m tensor.Mem, stamp float64) (comm.Handle, error) {
	h, err := s.Transport.Isend(to, tag, m, stamp)
	if err != nil || tag >= comm.TagReduce {
		return h, err
	}
	return slowSend{h, s}, nil
}

type slowSend struct {
	comm.Handle
	slowBuffers
}

// Test is done when a wait spins, not when it is asked in passing.
func (s slowSend) Test(spin time.Duration) (bool, comm.Arrival, error) {
	if spin == 0 {
		return false, comm.Arrival{}, nil
	}
	s.clock.Advance(waitSeconds)
	for {
		if done, got, err := s.Handle.Test(0); done {
			return done, got, err
		}
		s.Handle.(comm.Sleeper).Sleep(time.Second)
	}
}

// TestInstructionSpans: an instruction's span is the work of its rank. It includes the reading of
// data and the copies between the rank's chunks, but no wait for a buffer. A layer's span is the
// layer alone.
func TestInstructionSpans(t *testing.T) {
	for _, plan := range []schedule.Schedule{
		newSchedule(t, schedule.Kind1F1B, 3, 1), newSchedule(t, schedule.KindZBH1, 2, 1), newSchedule(t, schedule.KindInterleaved, 2, 2),
		newSchedule(t, schedule.KindZBV, 2, 2), newSchedule(t, schedule.KindZBV, 1, 2),
	} {
		m := plan.Map
		t.Run(fmt.Sprintf("%s/stages=%d", plan.Kind, m.Stages), func(t *testing.T) {
			err := local.Run(m.Stages, func(tr comm.Transport) error {
				clock := device.NewVirtual()
				clock.Pause() // only known costs count
				tr = slowBuffers{tr, clock}
				r, err := runner(tr, tiny, plan, clock, null.New(clock, perBlock))
				if err != nil {
					return err
				}
				r.x.Stream = slowCopies{r.x.Stream, clock}
				tokens, targets := r.feed(0)
				done, err := r.Step(func(int) ([]int32, []int32) {
					clock.Advance(feedSeconds)
					return tokens, targets
				})
				if err != nil {
					return err
				}
				compare(t, plan, tr.Rank(), done)
				return nil
			})
			expect.OK(t, err)
		})
	}
}

// compare fails the test where spans of a stage are not what things take.
func compare(t *testing.T, plan schedule.Schedule, stage int, done pipeline.Result) {
	type work struct {
		kind              trace.Op
		chunk, microbatch int
	}
	layers := map[work]float64{} // seconds
	for _, span := range done.Spans {
		if !span.Op.Pipeline() {
			continue
		}
		want := 1.
		switch {
		case tiny.Chain()[span.Layer].Block < 0:
			want = 0
		case span.Op == trace.I:
			want += 2 * copySeconds // where a block's two branches part
		}
		got := span.End - span.Start
		if math.Abs(got-want) > rounding {
			t.Errorf("stage %d: layer %d: %v takes %v s, want %v", stage, span.Layer, span.Op, got, want)
		}
		layers[work{span.Op, span.Chunk, span.Microbatch}] += got
	}
	for i, in := range plan.Lists[stage] {
		span := done.Instructions[i]
		kinds := []trace.Op{span.Op}
		if span.Op == trace.B {
			kinds = []trace.Op{trace.I, trace.W}
		}
		want := besides(plan.Map, stage, in)
		for _, kind := range kinds {
			want += layers[work{kind, in.Chunk, in.Microbatch}]
		}
		if got := span.End - span.Start; math.Abs(got-want) > rounding {
			t.Errorf("stage %d: %v takes %v s, want %v", stage, in, got, want)
		}
	}
	if last := done.Instructions[len(done.Instructions)-1].End; plan.Map.Stages > 1 && last < waitSeconds {
		t.Errorf("stage %d is done after %v s: nobody has waited for a buffer", stage, last)
	}
}

// besides returns the seconds of an instruction besides its layers. A forward reads data and puts
// it in place for the first and the last layer of the chain. It also copies the output of a chunk
// of the same rank.
func besides(m partition.Map, stage int, in schedule.Instr) float64 {
	if in.Op != schedule.F {
		return 0
	}
	v := m.Place(stage, in.Chunk)
	sum := 0.
	if v == 0 || v == m.Virtual()-1 {
		sum += feedSeconds + copySeconds
	}
	if v > 0 && m.Stage(v-1) == m.Stage(v) {
		sum += copySeconds
	}
	return sum
}
