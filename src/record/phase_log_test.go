package record

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestPhaseLog: steps of one layout and model are one phase. Its costs are the mean of the lower half
// of theirs, its run is that of their median makespan. A change of the model, a change of the
// cuts, and its own length end it.
func TestPhaseLog(t *testing.T) {
	table := func(seconds float64) cost.Measurement {
		return cost.Measurement{Table: cost.Table{Clock: "wall", Layers: []cost.Layer{{Name: "a", Forward: seconds, BackwardInput: 2 * seconds, BackwardWeight: 3 * seconds}}}}
	}
	ran := func(cuts partition.Partition, makespan float64, seconds ...float64) Course {
		order := schedule.Schedule{Map: partition.Line(cuts.Stages())}
		r := Course{Layout: layout.New(cuts, order, 1, layout.StageMajor), Makespan: makespan}
		for _, x := range seconds {
			r.Scale = append(r.Scale, []cost.Stage{{Forward: x, Input: x, Weight: x}})
		}
		return r
	}
	var log phaseLog
	var got Series
	note := func(s Phase, ok bool) {
		if ok {
			got = append(got, s)
		}
	}
	one, two := partition.Partition{0, 1}, partition.Partition{0, 0, 1}
	note(log.add(0, 1, table(1), nil, ran(one, 10, 1)))
	note(log.add(1, 1, table(9), nil, ran(one, 30, 3)))
	note(log.add(2, 1, table(4), nil, ran(one, 20, 24)))
	log.change = "prune"
	note(log.add(3, 1, table(4), nil, ran(one, 5)))
	note(log.add(4, 1, table(5), nil, ran(two, 6)))
	note(log.take())
	note(log.take())
	phase := func(step, steps int, seconds float64, change string, run Course) Phase {
		return Phase{Phase: cost.Phase{Step: step, Steps: steps, Table: table(seconds).Table, Change: change}, Run: &run}
	}
	median := ran(one, 20)
	median.Scale = [][]cost.Stage{{{Forward: 12, Input: 6, Weight: 4}}} // 24 s of each, over 2, 4 and 6
	want := Series{
		phase(0, 3, 2, "", median), phase(3, 1, 4, "prune", ran(one, 5)), phase(4, 1, 5, "", ran(two, 6)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	for step := range 2*longestPhase + 1 {
		note(log.add(step, 1, table(1), nil, ran(one, 1)))
	}
	if len(got) != 2 || got[0].Steps != longestPhase || got[1].Step != longestPhase {
		t.Errorf("%d phases of the longestPhase length, want 2", len(got))
	}
}

// TestPhaseLogSamples: a step costs the mean of the lower half of its microbatches on a rank of speed 1.
// A phase costs the mean of the lower half of its steps. The phase keeps a bounded part of the
// samples, as multiples of its cost.
func TestPhaseLogSamples(t *testing.T) {
	cuts := partition.Partition{0, 1, 2}
	run := Course{Layout: layout.New(cuts, schedule.Schedule{Map: partition.Line(2)}, 1, layout.StageMajor), Makespan: 1, Rest: 2, Balancing: 3}
	var log phaseLog
	const steps, microbatches = 20, 16
	for step := range steps {
		m := cost.Measurement{Table: cost.Table{Layers: make([]cost.Layer, 2), Slow: []float64{1, 2}}, Samples: make([][]cost.Stage, 2)}
		for i := range microbatches {
			noise := 1.0
			if i%4 == 3 {
				noise = 5 // a quarter of all, which the lower half does not see
			}
			m.Samples[0] = append(m.Samples[0], cost.Stage{Forward: noise * 1e-3, Input: noise * 2e-3, Weight: noise * 3e-3})
			m.Samples[1] = append(m.Samples[1], cost.Stage{Forward: noise * 8e-3})
		}
		if _, ok := log.add(step, 1, m, nil, run); ok {
			t.Fatal("a phase ended early")
		}
	}
	p, _ := log.take()
	for l, want := range []cost.Stage{{Forward: 1e-3, Input: 2e-3, Weight: 3e-3}, {Forward: 4e-3}} {
		if got := p.Layers[l].Stage(); got != want {
			t.Errorf("layer %d costs %v, want %v", l, got, want)
		}
	}
	if p.Run.Rest != 2 || p.Run.Balancing != 3*steps {
		t.Errorf("rest %v s and balancing %v s, want 2 and %v", p.Run.Rest, p.Run.Balancing, 3*steps)
	}
	if len(p.Samples) != sampledSteps || len(p.Samples[0]) != 2 || len(p.Samples[0][0]) != sampledMicrobatches {
		t.Fatalf("samples of %d steps, want %d with 2 layers and %d microbatches", len(p.Samples), sampledSteps, sampledMicrobatches)
	}
	seen := map[cost.Stage]bool{}
	for _, rows := range p.Samples {
		for _, s := range rows[1] {
			seen[s] = true
		}
	}
	if !seen[cost.Stage{Forward: 1, Input: 1, Weight: 1}] || !seen[cost.Stage{Forward: 5, Input: 1, Weight: 1}] || len(seen) != 2 {
		t.Errorf("samples %v, want multiples 1 and 5 of the costs, and 1 of those that are 0", seen)
	}
}

// TestLogOfUnevenWork: a layer works on other numbers of tokens in every step. Its cost is that
// of their mean number, however they are spread.
func TestLogOfUnevenWork(t *testing.T) {
	var log phaseLog
	for step, work := range []float64{0.2, 0, 3, 0.8} {
		seconds := 0.0
		if work > 0 {
			seconds = 1 + 4*work // 5 on all tokens, a fifth of that fixed
		}
		m := cost.Measurement{Table: cost.Table{Layers: []cost.Layer{{Forward: seconds}}}, Work: [][]float64{{work, work}}, Fixed: []float64{0.2}}
		log.add(step, 1, m, nil, Course{})
	}
	p, _ := log.take()
	if got, want := p.Layers[0].Forward, (1.8+0+13+4.2)/4; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v s, want %v", got, want)
	}
}
