package pipeline_test

import (
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// capturer is a stream of a CPU that captures calls by remembering them.
type capturer struct {
	device.Stream
	captured, launched, open int
}

type remembered struct {
	s       *capturer
	enqueue func()
}

func (s *capturer) Capture(enqueue func()) device.Graph {
	s.captured++
	s.open++
	return remembered{s, enqueue}
}

func (g remembered) Launch() {
	g.s.launched++
	g.enqueue()
}

func (g remembered) Close() { g.s.open-- }

// capturing returns one rank of a pipeline that enqueues graphs, and its stream.
func capturing(tr comm.Transport, c model.Config, plan schedule.Schedule) (*member, *capturer, error) {
	r, err := runner(tr, c, plan, device.NewWall(), ref.New(tensor.F32))
	if err != nil {
		return nil, nil, err
	}
	stream := &capturer{Stream: r.x.Stream}
	r.x.Stream = stream
	return r, stream, r.replan(equal(c, plan.Map), plan, pipeline.Options{Graphs: true})
}

// TestGraphs wants every pass to be captured when it comes again over the same
// memory, and what is computed to stay the same.
func TestGraphs(t *testing.T) {
	for _, plan := range []schedule.Schedule{
		newSchedule(t, schedule.Kind1F1B, 1, 1), newSchedule(t, schedule.Kind1F1B, 3, 1),
		newSchedule(t, schedule.KindInterleaved, 2, 2), newSchedule(t, schedule.KindZBV, 3, 2),
	} {
		want := train(t, tiny, plan).losses
		err := local.Run(plan.Map.Stages, func(tr comm.Transport) error {
			r, stream, err := capturing(tr, tiny, plan)
			if err != nil {
				return err
			}
			got, err := steps(r, 0.1)
			if err != nil {
				return err
			}
			if tr.Rank() == 0 && !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", plan.Kind, got, want)
			}
			passes := 3 * len(r.s.Layers) * microbatches * len(got)
			if stream.captured == 0 || stream.launched < passes/2 || stream.launched > passes {
				t.Errorf("%s: %d graphs, %d launches for %d passes", plan.Kind, stream.captured, stream.launched, passes)
			}
			r.Close()
			if stream.open != 0 {
				t.Errorf("%s: %d graphs are left after Close", plan.Kind, stream.open)
			}
			return nil
		})
		expect.OK(t, err)
	}
}

// TestGraphsOfOneStage counts. One microbatch in flight has one memory. So of each layer's three
// passes the first is plain, the second is captured, and the second and all later ones are
// launches. A new runner starts again, and without Graphs there are none.
func TestGraphsOfOneStage(t *testing.T) {
	plan := newSchedule(t, schedule.Kind1F1B, 1, 1)
	err := local.Run(1, func(tr comm.Transport) error {
		r, err := runner(tr, tiny, plan, device.NewWall(), ref.New(tensor.F32))
		if err != nil {
			return err
		}
		stream := &capturer{Stream: r.x.Stream}
		r.x.Stream = stream
		again := func() {
			if err == nil {
				err = r.replan(equal(tiny, plan.Map), plan, pipeline.Options{Graphs: true})
			}
		}
		passes := 3 * len(r.s.Layers)
		step := func(what string, captured, launched int) {
			if err == nil {
				_, err = r.Step(r.feed)
			}
			if stream.captured != captured || stream.launched != launched {
				t.Errorf("%s: %d graphs and %d launches, want %d and %d",
					what, stream.captured, stream.launched, captured, launched)
			}
		}
		step("without", 0, 0)
		again()
		step("first step", passes, passes*(microbatches-1))
		step("second step", passes, passes*(2*microbatches-1))
		again()
		if stream.open != 0 {
			t.Errorf("%d graphs are left of an old runner", stream.open)
		}
		step("new runner", 2*passes, passes*(3*microbatches-2))
		return err
	})
	expect.OK(t, err)
}

// TestGraphsAreBounded: numbers of tokens that never repeat take no memory without
// end.
func TestGraphsAreBounded(t *testing.T) {
	c, plan := tiny, newSchedule(t, schedule.Kind1F1B, 1, 1)
	err := local.Run(1, func(tr comm.Transport) error {
		r, stream, err := capturing(tr, c, plan)
		if err != nil {
			return err
		}
		for range 8 { // twice as many as may be kept
			r.x.Full.Longest++ // another shape, with the same tokens
			for range 2 {
				if _, err := r.Step(r.feed); err != nil {
					return err
				}
			}
		}
		if most := 4 * 3 * c.Layers() * plan.Microbatches; stream.open == 0 || stream.open > most {
			t.Errorf("%d graphs, want some, and at most %d", stream.open, most)
		}
		return nil
	})
	expect.OK(t, err)
}
