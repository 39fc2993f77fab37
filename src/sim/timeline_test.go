package sim

import (
	"fmt"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// timeline writes every instruction with its start and end, a line for each stage.
func timeline(r Result) string {
	var b strings.Builder
	for stage, spans := range r.Spans {
		fmt.Fprintf(&b, "stage %d:", stage)
		for _, s := range spans {
			fmt.Fprintf(&b, "  %v%d", s.Op, s.Microbatch)
			if s.Chunk > 0 {
				fmt.Fprintf(&b, ".%d", s.Chunk)
			}
			fmt.Fprintf(&b, " %v-%v", s.Start, s.End)
		}
		fmt.Fprintf(&b, "  busy %v\n", r.Busy[stage])
	}
	fmt.Fprintf(&b, "makespan %v, idle %v\n", r.Makespan(), r.Idle())
	return b.String()
}

// TestTimelines compares small steps with times computed by hand.
func TestTimelines(t *testing.T) {
	unit := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	one := func(v ...string) schedule.Schedule { return parse(t, partition.Line(len(v)), v...) }
	for _, tc := range []struct {
		name string
		step Step
	}{
		// The step of TestByHand.
		{"unequal", Step{
			Schedule: plain(t, schedule.Kind1F1B, 2, 2),
			Costs:    []cost.Stage{{Forward: 1, Input: 1, Weight: 1}, {Forward: 2, Input: 1}},
		}},
		// Messages of 2 s follow forwards of 1 s, so they queue. F2 starts at 1 + 3·2 + 0.5, not at
		// 3 + 2 + 0.5.
		{"queue", Step{
			Schedule: one("F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"), Costs: equal(2, unit),
			Bytes: []int64{200, 0}, Network: Network{Node: Link{0.5, 100}},
		}},
		// A message that arrives early costs its receiver nothing: W0 hides it.
		{"hidden", Step{
			Schedule: one("F0 F1 I0 W0 I1 W1", "F0 I0 F1 I1 W0 W1"), Costs: equal(2, unit),
			Bytes: []int64{100, 0}, Network: Network{Node: Link{0, 100}},
		}},
		// Stage 2 is on another node than stage 1. The rank of stage 2 is twice as slow.
		{"nodes", Step{
			Schedule: one("F0 B0", "F0 B0", "F0 B0"), Costs: equal(3, unit), Bytes: []int64{8, 8, 8},
			Network: Network{Node: Link{1, 8}, Between: Link{10, 8}, PerNode: 2, Slow: []float64{1, 2}},
		}},
		// A V: the last virtual stage is on stage 0. Its gradient of microbatch 0, sent at 8, keeps
		// the link from 0 to 1 until 10. So the activation of microbatch 1, sent at 9, arrives at
		// 11.
		{"vee", Step{
			Schedule: parse(t, partition.Map{Stages: 2, Chunks: 2, Vee: true},
				"F0 F0.1 I0.1 F1 F1.1 I1.1 I0 W0 W0.1 I1 W1 W1.1",
				"F0 F0.1 F1 F1.1 I0.1 I0 W0.1 W0 I1.1 I1 W1.1 W1"),
			Costs: equal(4, unit), Bytes: []int64{100, 100, 200, 0}, Network: Network{Node: Link{0, 100}},
		}},
		// One microbatch costs twice as much as the other.
		{"per microbatch", Step{
			Schedule:      plain(t, schedule.KindGPipe, 2, 2),
			PerMicrobatch: [][]cost.Stage{{unit, unit.Scale(2)}, {unit, unit.Scale(2)}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.step.Spans = true
			expect.Golden(t, "testdata/timeline_"+strings.ReplaceAll(tc.name, " ", "_")+".txt", timeline(Run(tc.step)))
		})
	}
}

// parse reads lists in the format of schedule.Format, and checks them.
func parse(t *testing.T, m partition.Map, lists ...string) schedule.Schedule {
	t.Helper()
	s := schedule.Schedule{Map: m}
	ops := map[byte]schedule.Op{'F': schedule.F, 'B': schedule.B, 'I': schedule.I, 'W': schedule.W}
	for _, text := range lists {
		var list []schedule.Instr
		for _, word := range strings.Fields(text) {
			in := schedule.Instr{Op: ops[word[0]]}
			number, chunk, _ := strings.Cut(word[1:], ".")
			fmt.Sscan(number, &in.Microbatch)
			fmt.Sscan(chunk, &in.Chunk)
			s.Microbatches = max(s.Microbatches, in.Microbatch+1)
			list = append(list, in)
		}
		s.Lists = append(s.Lists, list)
	}
	expect.OK(t, s.Check(func(int) int { return len(s.Lists[0]) }))
	return s
}

// TestDelays: a delayed step is slower, with messages at most four times as slow. Delays differ
// each time, and are the same for equal keys.
func TestDelays(t *testing.T) {
	s := Step{
		Schedule: plain(t, schedule.Kind1F1B, 4, 8), Costs: equal(4, cost.Stage{}), // only messages take time
		Bytes: []int64{100, 100, 100, 0}, Network: Network{Node: Link{0.5, 100}},
		Mesh: layout.Mesh{Stages: 4, Replicas: 2},
	}
	plain := Run(s).Makespan()
	s.Network.Delay = comm.Delay{Most: 4, Seed: 3}
	late := Run(s).Makespan()
	if again := Run(s).Makespan(); again != late {
		t.Errorf("the same step takes %v and %v", late, again)
	}
	if late <= plain || late > 4*plain {
		t.Errorf("delayed by up to 4 it takes %v, want more than %v and at most four times that", late, plain)
	}
	for what, change := range map[string]func(*Step){
		"replica": func(s *Step) { s.Replica = 1 },
		"step":    func(s *Step) { s.Number = 1 },
		"seed":    func(s *Step) { s.Network.Delay.Seed = 4 },
	} {
		other := s
		if change(&other); Run(other).Makespan() == late {
			t.Errorf("another %s has the same delays", what)
		}
	}
}
