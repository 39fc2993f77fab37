package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/layout"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// between is the time between the starts of two steps. It is longer than any step.
const between = 1 << 20

// rankOf executes a stage's lists of several steps with real messages and returns its spans. Only
// messages and costs move its clock.
func rankOf(t comm.Transport, s Step, steps int) (spans [][]trace.Span, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := device.NewVirtual()
	clock.Pause()
	net := s.Network.Node.comm()
	net.Delay = s.Network.Delay
	g := comm.New(t, comm.Options{Clock: clock, Network: net})
	m, stage := s.Schedule.Map, t.Rank()
	tag := func(base, receiver, microbatch int) int {
		return base + (m.Chunk(receiver)*s.Schedule.Microbatches+microbatch)%comm.TagMicrobatches
	}
	memory := func(v, beside int) tensor.Mem {
		bytes := s.Bytes[min(v, beside)]
		return tensor.From(make([]byte, 1+bytes)).Span(0, bytes)
	}
	var sends []comm.Request
	send := func(base, v, to, microbatch int) error {
		r, err := g.Send(m.Stage(to), tag(base, to, microbatch), memory(v, to), nil)
		sends = append(sends, r)
		return err
	}
	receive := func(base, v, from, microbatch int) error {
		r, err := g.Recv(m.Stage(from), tag(base, v, microbatch), memory(v, from), nil)
		if err != nil {
			return err
		}
		return r.Wait()
	}
	for step := range steps {
		clock.Advance(float64(step*between) - clock.Now())
		var list []trace.Span
		for _, in := range s.Schedule.WithMessages(stage) {
			v := m.Place(stage, in.Chunk)
			var err error
			switch c := s.PerMicrobatch[v][in.Microbatch]; in.Op {
			case schedule.RecvForward:
				err = receive(comm.TagForward, v, v-1, in.Microbatch)
			case schedule.RecvBackward:
				err = receive(comm.TagBackward, v, v+1, in.Microbatch)
			case schedule.SendForward:
				err = send(comm.TagForward, v, v+1, in.Microbatch)
			case schedule.SendBackward:
				err = send(comm.TagBackward, v, v-1, in.Microbatch)
			default:
				start := clock.Now()
				clock.Advance([...]float64{
					schedule.F: c.Forward, schedule.I: c.Input, schedule.W: c.Weight, schedule.B: c.Input + c.Weight,
				}[in.Op])
				list = append(list, trace.Span{Op: in.Op, Microbatch: in.Microbatch, Chunk: in.Chunk, Start: start, End: clock.Now()})
			}
			if err != nil {
				return nil, fmt.Errorf("step %d: %v: %w", step, in, err)
			}
		}
		spans = append(spans, list)
	}
	for _, r := range sends {
		if err := r.Wait(); err != nil {
			return nil, err
		}
	}
	return spans, nil
}

// TestAgreesWithMessages: the simulator's times of messages equal those of comm on the virtual
// clock, for any map, with and without delays. The first step begins at 0 and agrees to the last
// bit. Later steps agree up to the rounding of their larger times.
func TestAgreesWithMessages(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6)) // fixed seed: a failure must repeat
	for i := range 60 {
		s := randomStep(rnd)
		if s.PerMicrobatch == nil || s.Bytes == nil {
			continue
		}
		s.Mesh, s.Replica = layout.Mesh{}, 0
		s.Network = Network{Node: s.Network.Node, Delay: s.Network.Delay}
		const steps = 3
		got := make([][][]trace.Span, s.Schedule.Map.Stages)
		var mu sync.Mutex
		err := local.Run(s.Schedule.Map.Stages, func(tr comm.Transport) error {
			spans, err := rankOf(tr, s, steps)
			mu.Lock()
			defer mu.Unlock()
			got[tr.Rank()] = spans
			return err
		})
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		for step := range steps {
			s.Number = step
			begin := float64(step * between)
			near := func(a, b float64) bool { return math.Abs(a-begin-b) <= begin*1e-14 } // the tolerance is 0 in the first step
			for stage, want := range Run(s).Spans {
				for k, w := range want {
					g := got[stage][step][k]
					if g.Op != w.Op || g.Microbatch != w.Microbatch || g.Chunk != w.Chunk || !near(g.Start, w.Start) || !near(g.End, w.End) {
						t.Fatalf("case %d, step %d, stage %d: executed %+v from %v on, simulated %+v", i, step, stage, g, begin, w)
					}
				}
			}
		}
	}
}
