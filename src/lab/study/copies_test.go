package study

import (
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestSimulateCopies: with a spare place a simulated run decides copies, and its steps come near
// those of even work. The same options give the same run again. Copies that take long to send are
// not made.
func TestSimulateCopies(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 10, 2, 4)
	c.Balance.Kind, c.Parallel.Replicas = "uniform", 4
	c.Assign("simulate.routing", "hot-rank", "simulate.experts", 8, "simulate.expert_ranks", 4)
	run := func(spare int, n sim.Network) *Run {
		c.Assign("simulate.expert_spare", spare)
		o := on(c, n)
		series, err := Generate("moe", plantest.Chain(10, 0, 1), &o, dynamic.MadeUp{Steps: 12}, 0)
		expect.OK(t, err)
		out := simulated(t, series, o)
		if again := simulated(t, series, o); again.Seconds != out.Seconds {
			t.Errorf("spare %d: %v s, then %v s", spare, out.Seconds, again.Seconds)
		}
		return out
	}
	none, one, slow := run(0, sim.Uniform(0, 0)), run(1, sim.Uniform(0, 0)), run(1, sim.Uniform(0, 1000))
	last := func(r *Run) Segment { return r.Segments[len(r.Segments)-1] }
	if last(one).Copied == 0 || last(one).StepSeconds > 0.9*last(none).StepSeconds {
		t.Errorf("a step takes %v s with copies, which send %d bytes, and %v s without", last(one).StepSeconds, last(one).Copied, last(none).StepSeconds)
	}
	if last(slow).Copied != 0 || slow.Moving != 0 {
		t.Errorf("over slow links copies send %d bytes in a step, and moves take %v s", last(slow).Copied, slow.Moving)
	}
}
