package plan

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// halved returns a table whose back half costs and holds a share of what it did.
func halved(t cost.Table, share float64) cost.Table {
	t.Layers = slices.Clone(t.Layers)
	for l := len(t.Layers) / 2; l < len(t.Layers); l++ {
		at := &t.Layers[l]
		at.Forward, at.BackwardInput, at.BackwardWeight = at.Forward*share, at.BackwardInput*share, at.BackwardWeight*share
	}
	return t
}

// shrinking is a run whose back half becomes cheap after 20 of 60 steps.
func shrinking(share float64) cost.Series {
	dense := chain(16, 0, 0)
	return cost.Series{{Step: 0, Steps: 20, Table: dense}, {Step: 20, Steps: 40, Table: halved(dense, share), Change: "prune"}}
}

func walk(t *testing.T, s cost.Series, o Options) Run {
	t.Helper()
	run, err := Walk(s, o)
	if err != nil {
		t.Fatal(err)
	}
	at := s[0].Step
	for _, l := range run.Legs {
		if l.Step != at || l.Steps < 1 {
			t.Fatalf("leg of %d steps from %d, want it to begin at %d", l.Steps, l.Step, at)
		}
		at += l.Steps
	}
	if last := s[len(s)-1]; at != last.Step+last.Steps {
		t.Fatalf("legs end at step %d, the series at %d", at, last.Step+last.Steps)
	}
	return run
}

func on(c config.Config, n sim.Network) Options { return Options{Config: c, Network: n} }

// TestWalkBalances: after the change of the model the balancer moves layers,
// the moves are paid for, and the run is faster than on the first cuts.
func TestWalkBalances(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1, schedule.KindAuto} {
		for _, every := range []string{"10", "auto"} {
			c := settings(kind, 16, 4, 8)
			c.Balance.Every = every
			o := on(c, link)
			run := walk(t, shrinking(0.2), o)
			o.Static = true
			still := walk(t, shrinking(0.2), o)
			if len(still.Legs) != 2 || still.Moving != 0 {
				t.Errorf("%s: %d legs and %v s of moves without balancing, want 2 and none", kind, len(still.Legs), still.Moving)
			}
			if !(run.Seconds < still.Seconds) || run.Moving <= 0 {
				t.Errorf("%s, every %s: %v s with balancing (%v s of moves), %v s without", kind, every, run.Seconds, run.Moving, still.Seconds)
			}
			first, last := run.Legs[0], run.Legs[len(run.Legs)-1]
			if first.Plan.Cuts.Equal(last.Plan.Cuts) {
				t.Errorf("%s, every %s: cuts stayed %v", kind, every, first.Plan.Cuts)
			}
		}
	}
}

// TestWalkSumsUp: the seconds of a run are those of its steps and moves, and
// ranks are counted while they hold layers.
func TestWalkSumsUp(t *testing.T) {
	c := settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Every, c.Parallel.Replicas = "10", 3
	run := walk(t, shrinking(0.2), on(c, link))
	seconds := 0.0
	for _, l := range run.Legs {
		seconds += float64(l.Steps)*l.Seconds + l.Moving
		if l.Exposed <= 0 || l.Seconds < l.Plan.Step.Makespan() {
			t.Errorf("step %d: %v s, of which %v s gradient sum, makespan %v", l.Step, l.Seconds, l.Exposed, l.Plan.Step.Makespan())
		}
	}
	if math.Abs(seconds-run.Seconds) > 1e-9 || math.Abs(run.RankSeconds-12*seconds) > 1e-9 {
		t.Errorf("%v s and %v rank seconds, want %v and %v", run.Seconds, run.RankSeconds, seconds, 12*seconds)
	}
}

// TestWalkRepacks: a model that shrank to a tenth fits on fewer stages without
// falling below its first throughput; a dense one stays where it is.
func TestWalkRepacks(t *testing.T) {
	dense := chain(16, 0, 0)
	all := halved(dense, 0.1)
	for l := range 8 {
		all.Layers[l] = all.Layers[l+8]
	}
	c := settings(schedule.Kind1F1B, 16, 8, 16)
	c.Balance.Every = "5"
	o := on(c, sim.Network{})
	o.Repack = 0.02
	run := walk(t, cost.Series{{Step: 0, Steps: 20, Table: dense}, {Step: 20, Steps: 20, Table: all}}, o)
	moved := int64(0)
	for _, l := range run.Legs {
		moved += l.Moved
		if l.Step < 20 && l.Stages != 8 {
			t.Errorf("step %d: the dense model runs on %d stages", l.Step, l.Stages)
		}
		if slower := l.Plan.Step.Makespan() / run.Legs[0].Plan.Step.Makespan(); slower > 1/(1-o.Repack) {
			t.Errorf("step %d: %v times the first step", l.Step, slower)
		}
	}
	if last := run.Legs[len(run.Legs)-1]; last.Stages >= 8 || moved == 0 {
		t.Errorf("at the end on %d stages, %d bytes moved", last.Stages, moved)
	}
}

// TestReplay: stretches that ran are simulated as they ran: layout, order of
// work, network and what every microbatch took.
func TestReplay(t *testing.T) {
	costs := chain(16, 1, 3)
	for _, kind := range []schedule.Kind{schedule.KindZBV, schedule.KindInterleaved, schedule.KindList} {
		p := planner(t, settings(kind, 16, 2, 6), link)
		cuts, err := p.Cuts(costs)
		if err != nil {
			t.Fatal(err)
		}
		order := p.Schedule(costs, cuts)
		run := profile.Run{Layout: p.layout(cuts, order), Latency: link.Node.Latency, Bandwidth: link.Node.Bandwidth}
		for v := range cuts.Stages() {
			one, two := cost.Stage{Forward: 1, Input: 1, Weight: 1}, cost.Stage{Forward: 2, Input: 1, Weight: float64(v)}
			run.Scale = append(run.Scale, []cost.Stage{one, two, one, two, one, two})
		}
		s := profile.Phase{Phase: cost.Phase{Step: 5, Steps: 5, Table: costs}, Run: &run}
		step := p.Step(costs, cuts, order)
		step.PerMicrobatch = s.Costs().PerMicrobatch(cuts, p.Map, 6)
		run.Makespan = 2 * sim.Run(step).Makespan()
		got := Replay(profile.Series{{Phase: cost.Phase{Step: 0, Steps: 5, Table: costs}}, s})
		if len(got) != 1 || got[0].Step != 5 || math.Abs(got[0].Error()+0.5) > 1e-12 {
			t.Errorf("%s: %+v, want one stretch from step 5 with half its makespan predicted", kind, got)
		}
		next := s
		next.Step = 10
		if again := Replay(profile.Series{s, next}); again[1].Ahead != 0 {
			t.Errorf("%s: %+v: a phase of the same layout was foretold", kind, again)
		}
	}
}

// TestWalkSettles: steps on one table are one leg once the balancer has nothing
// more to move, however often it is asked.
func TestWalkSettles(t *testing.T) {
	c := settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Every = "1"
	run := walk(t, shrinking(0.2), on(c, link))
	if len(run.Legs) > 6 {
		t.Errorf("%d legs of 60 steps on two tables", len(run.Legs))
	}
	if run.Legs[0].Plan.Step.Spans != nil {
		t.Error("spans were kept that nobody asked for")
	}
}

// TestWalkWithUnevenMicrobatches: busy and idle time of a leg are its makespan
// also where microbatches differ and messages are delayed.
func TestWalkWithUnevenMicrobatches(t *testing.T) {
	c := settings(schedule.KindZBH1, 16, 4, 8)
	c.Parallel.Replicas = 2
	n := link
	n.Delay.Most, n.Slow = 4, []float64{1, 1, 2}
	s := cost.Phase{Step: 0, Steps: 20, Table: chain(16, 1, 1)}
	for l := range s.Layers {
		draw := random.Keyed(uint64(l), 9)
		row := make([]float64, 8)
		for m := range row {
			row[m] = 0.5 + draw.Float64()
		}
		s.Scale = append(s.Scale, row)
	}
	for _, l := range walk(t, cost.Series{s}, on(c, n)).Legs {
		if parts := l.Idle.Makespan(); math.Abs(parts-l.Makespan) > 1e-9 || l.Seconds < l.Makespan || l.Idle.Imbalance < 0 {
			t.Errorf("parts %v, makespan %v, step %v, %+v", parts, l.Makespan, l.Seconds, l.Idle)
		}
	}
}
