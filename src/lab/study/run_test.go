package study

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// halved returns a table whose back half has the given share of its costs and bytes.
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
	dense := plantest.Chain(16, 0, 0)
	return cost.Series{{Step: 0, Steps: 20, Table: dense}, {Step: 20, Steps: 40, Table: halved(dense, share), Change: "prune"}}
}

// recorded is the phases and the steps of a record.
type recorded struct {
	Run
	phases record.Series
}

func (r *recorded) Costs(p record.Phase) error {
	r.phases = append(r.phases, p)
	return nil
}

func simulated(t *testing.T, s cost.Series, o Options) *Run {
	t.Helper()
	run, err := Simulate(s, o)
	expect.OK(t, err)
	at := s[0].Step
	for _, l := range run.Segments {
		if l.Step != at || l.Steps < 1 {
			t.Fatalf("segment of %d steps from %d, want it to begin at %d", l.Steps, l.Step, at)
		}
		at += l.Steps
	}
	if last := s[len(s)-1]; at != last.Step+last.Steps {
		t.Fatalf("segments end at step %d, the series at %d", at, last.Step+last.Steps)
	}
	return run
}

func on(c config.Config, n sim.Network) Options { return Options{Config: c, Network: n} }

// TestSimulateBalances: after the change of the model the balancer moves layers,
// the moves are paid for, and the run is faster than on the first cuts.
func TestSimulateBalances(t *testing.T) {
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1, schedule.KindAuto} {
		for _, every := range []string{"10", "auto"} {
			c := plantest.Settings(kind, 16, 4, 8)
			c.Balance.Every = every
			o := on(c, plantest.Link)
			run := simulated(t, shrinking(0.2), o)
			o.Static = true
			still := simulated(t, shrinking(0.2), o)
			if len(still.Segments) != 2 || still.Moving != 0 {
				t.Errorf("%s: %d segments and %v s of moves without balancing, want 2 and none", kind, len(still.Segments), still.Moving)
			}
			if !(run.Seconds < still.Seconds) || run.Moving <= 0 {
				t.Errorf("%s, every %s: %v s with balancing (%v s of moves), %v s without", kind, every, run.Seconds, run.Moving, still.Seconds)
			}
			first, last := run.Segments[0], run.Segments[len(run.Segments)-1]
			if slices.Equal(first.Cuts, last.Cuts) {
				t.Errorf("%s, every %s: cuts stayed %v", kind, every, first.Cuts)
			}
		}
	}
}

// TestSimulateSumsUp: the seconds of a run are those of its steps and moves, and
// ranks are counted while they hold layers.
func TestSimulateSumsUp(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Every, c.Parallel.Replicas = "10", 3
	run := simulated(t, shrinking(0.2), on(c, plantest.Link))
	seconds := 0.0
	for _, l := range run.Segments {
		seconds += float64(l.Steps) * float64(l.StepSeconds+l.BalanceSeconds)
		if l.Rest() <= 0 || l.LowerBound > l.Makespan || l.Idle.Balancing != float64(l.BalanceSeconds) {
			t.Errorf("step %d: %+v with %v s gradient sum", l.Step, l, l.Rest())
		}
	}
	if run.Measuring <= 0 || run.Deciding <= 0 || math.Abs(run.Measuring+run.Deciding+run.Moving-(run.Seconds-run.work)) > 1e-9 || math.Abs(seconds-run.Seconds) > 1e-9 || math.Abs(run.RankSeconds-12*seconds) > 1e-9 {
		t.Errorf("%v s and %v rank seconds, want %v and %v", run.Seconds, run.RankSeconds, seconds, 12*seconds)
	}
}

// TestSimulateRepacks: a model that shrank to a tenth fits on fewer stages without
// falling below its first throughput; a dense one stays where it is.
func TestSimulateRepacks(t *testing.T) {
	dense := plantest.Chain(16, 0, 0)
	all := halved(dense, 0.1)
	for l := range 8 {
		all.Layers[l] = all.Layers[l+8]
	}
	c := plantest.Settings(schedule.Kind1F1B, 16, 8, 16)
	c.Balance.Every = "5"
	o := on(c, sim.Network{})
	o.Config.Repack.Kind, o.Config.Repack.Tolerance = "sustain", 0.02
	run := simulated(t, cost.Series{{Step: 0, Steps: 20, Table: dense}, {Step: 20, Steps: 20, Table: all}}, o)
	moved := int64(0)
	for _, l := range run.Segments {
		moved += l.Moved
		if l.Step < 20 && l.Stages() != 8 {
			t.Errorf("step %d: the dense model runs on %d stages", l.Step, l.Stages())
		}
		if slower := float64(l.Makespan / run.Segments[0].Makespan); slower > 1/(1-o.Config.Repack.Tolerance) {
			t.Errorf("step %d: %v times the first step", l.Step, slower)
		}
	}
	if last := run.Segments[len(run.Segments)-1]; last.Stages() >= 8 || moved == 0 {
		t.Errorf("at the end on %d stages, %d bytes moved", last.Stages(), moved)
	}
}

// TestReplay: phases that ran are simulated as they ran: layout, order of
// work, network and what every microbatch took.
func TestReplay(t *testing.T) {
	costs := plantest.Chain(16, 1, 3)
	for _, kind := range []schedule.Kind{schedule.KindZBV, schedule.KindInterleaved, schedule.KindList} {
		p, err := search.New(plantest.Settings(kind, 16, 2, 6), plantest.Link, nil)
		expect.OK(t, err)
		best, err := p.Step(costs, layout.Layout{}).BestLayout()
		expect.OK(t, err)
		cuts, order := best.Cuts, best.Schedule
		run := record.Course{Layout: layout.New(cuts, order, 1, layout.StageMajor), Latency: plantest.Link.Node.Latency, Bandwidth: plantest.Link.Node.Bandwidth}
		for v := range cuts.Stages() {
			one, two := cost.Stage{Forward: 1, Input: 1, Weight: 1}, cost.Stage{Forward: 2, Input: 1, Weight: float64(v)}
			run.Scale = append(run.Scale, []cost.Stage{one, two, one, two, one, two})
		}
		s := record.Phase{Phase: cost.Phase{Step: 5, Steps: 5, Table: costs}, Run: &run}
		step := sim.Step{Schedule: order, Costs: costs.Stages(cuts, order.Map), Bytes: search.Messages(costs, cuts), Network: plantest.Link}
		step.PerMicrobatch = s.Costs().PerMicrobatch(cuts, order.Map, 6)
		run.Makespan = 2 * sim.Run(step).Makespan()
		got := Replay(record.Series{{Phase: cost.Phase{Step: 0, Steps: 5, Table: costs}}, s})
		if len(got) != 1 || got[0].Step != 5 || math.Abs(got[0].Error+0.5) > 1e-12 {
			t.Errorf("%s: %+v, want one phase from step 5 with half its makespan predicted", kind, got)
		}
		next := s
		next.Step = 10
		if again := Replay(record.Series{s, next}); again[1].Ahead != 0 {
			t.Errorf("%s: %+v: a phase of the same layout was predicted", kind, again)
		}
	}
}

// TestSimulateSettles: steps on one table are one segment once the balancer has nothing
// more to move, however often it is asked.
func TestSimulateSettles(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Every = "1"
	run := simulated(t, shrinking(0.2), on(c, plantest.Link))
	if len(run.Segments) > 6 {
		t.Errorf("%d segments of 60 steps on two tables", len(run.Segments))
	}
}

// TestSimulateUnevenMicrobatches: busy and idle time of a segment are its makespan
// also where microbatches differ and messages are delayed.
func TestSimulateUnevenMicrobatches(t *testing.T) {
	c := plantest.Settings(schedule.KindZBH1, 16, 4, 8)
	c.Parallel.Replicas = 2
	n := plantest.Link
	n.Delay.Most, n.Slow = 4, []float64{1, 1, 2}
	s := cost.Phase{Step: 0, Steps: 20, Table: plantest.Chain(16, 1, 1)}
	for l := range s.Layers {
		draw := random.Keyed(uint64(l), 9)
		row := make([]float64, 8)
		for m := range row {
			row[m] = 0.5 + draw.Float64()
		}
		s.Scale = append(s.Scale, row)
	}
	for _, l := range simulated(t, cost.Series{s}, on(c, n)).Segments {
		if parts := l.Idle.Makespan(); math.Abs(parts-float64(l.Makespan)) > 1e-9 || l.StepSeconds < l.Makespan || l.Idle.Imbalance < 0 || math.Abs(1-l.Idle.Busy/parts-float64(l.BubbleRatio)) > 1e-9 {
			t.Errorf("parts %v, makespan %v, step %v, %+v, bubble ratio %v", parts, l.Makespan, l.StepSeconds, l.Idle, l.BubbleRatio)
		}
	}
}

// TestCeiling: by hand. With 3 microbatches loads 4 and 2 take 6 + 2·4, the best
// loads 3 and 3 take 6 + 2·3: 7/6. Loads 2 and 2 are the best.
func TestCeiling(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 4, 2, 3)
	c.Balance.Kind = "uniform"
	phase := func(seconds ...float64) (p cost.Phase) {
		for _, x := range seconds {
			p.Layers = append(p.Layers, cost.Layer{Forward: x})
		}
		return p
	}
	series := cost.Series{phase(3, 1, 1, 1), phase(1, 1, 1, 1)}
	series[0].Steps, series[1].Step, series[1].Steps = 2, 2, 1
	o := on(c, sim.Network{})
	o.Static = true
	still := simulated(t, series, o)
	first, second := 2*float64(still.Segments[0].StepSeconds), float64(still.Segments[1].StepSeconds)
	if got, want := still.Ceiling(), (first+second)/(first*6/7+second); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, want %v", got, want)
	}
	if got := simulated(t, series[:1], on(plantest.Settings(schedule.KindZBV, 4, 1, 3), sim.Network{})).Ceiling(); got != 0 {
		t.Errorf("with two chunks on a stage %v, want 0", got)
	}
}

// TestSimulateOrders: as in training, the order of work follows costs that change
// when the balancer decides, two steps after the change, not earlier; that of a static
// run follows at once.
func TestSimulateOrders(t *testing.T) {
	c := plantest.Settings(schedule.KindAuto, 16, 4, 8)
	c.Balance.Every, c.Balance.Kind = "8", "uniform"
	o := on(c, plantest.Link)
	series := shrinking(0.2)
	for l := range 8 {
		series[1].Layers[l].BackwardInput, series[1].Layers[l].BackwardWeight = 0, 0
	}
	phases := func() record.Series {
		r := new(recorded)
		o.Observe = r
		simulated(t, series, o)
		return r.phases
	}
	var before record.Phase
	for i, s := range phases() {
		if i > 0 && (s.Run.Layout.Schedule.Equal(before.Run.Layout.Schedule) != (s.Change != "") || s.Change == "" && s.Step != before.Step+2) {
			t.Errorf("step %d, change %q: the order of work changes, or does not", s.Step, s.Change)
		}
		before = s
	}
	if before.Step != 22 || before.Steps != 38 {
		t.Errorf("the last of %d steps is ordered from step %d on, want 22", before.Steps, before.Step)
	}
	o.Static = true
	still := phases()
	if len(still) != 2 || still[0].Run.Layout.Schedule.Equal(still[1].Run.Layout.Schedule) {
		t.Errorf("%d phases without balancing, want 2 in other orders", len(still))
	}
}

// TestSimulatePacks: from the user's steps on the stages are the user's number, whatever that
// costs. The steps around them are simulated or not.
func TestSimulatePacks(t *testing.T) {
	for _, sampling := range []Sampling{{}, {From: 10, Interval: 5}} {
		c := plantest.Settings(schedule.Kind1F1B, 16, 8, 16)
		o := on(c, plantest.Link)
		o.Sampling, o.Pack = sampling, map[int]int{20: 6, 40: 4}
		series := cost.Series{{Step: 0, Steps: 60, Table: plantest.Chain(16, 0, 0)}}
		for _, s := range simulated(t, series, o).Segments {
			want := 8
			if s.Step >= 40 {
				want = 4
			} else if s.Step >= 20 {
				want = 6
			}
			if s.Stages() != want || s.Step < 40 && s.Step+s.Steps > 40 || s.Step < 20 && s.Step+s.Steps > 20 {
				t.Errorf("%+v: steps %d to %d on %d stages, want %d", sampling, s.Step, s.Step+s.Steps-1, s.Stages(), want)
			}
		}
	}
}

// TestSegmentsJoin: steps without changes between them are one segment, with the mean of what balancing
// takes. Other steps are not.
func TestSegmentsJoin(t *testing.T) {
	line := record.Metrics{Step: 0, Steps: 2, Ranks: 2, Schedule: "1f1b", Cuts: []int{0, 1, 2}, LayersPerStage: []int{1, 1}, StepSeconds: 1, BalanceSeconds: 0.5, Headroom: 1}
	event := func(step int, kind record.EventKind, bytes int64) []record.Event {
		return []record.Event{{Step: step, Kind: kind, Bytes: bytes, Detail: map[string]any{"what": "prune"}}}
	}
	for _, c := range []struct {
		name   string
		events []record.Event
		change func(*record.Metrics)
		want   int
	}{
		{"alike", nil, func(*record.Metrics) {}, 1},
		{"decided", event(1, record.Balance, 0), func(*record.Metrics) {}, 1},
		{"a change to come", event(6, record.Migrate, 1), func(*record.Metrics) {}, 1},
		{"model", event(2, record.Dynamic, 0), func(*record.Metrics) {}, 2},
		{"moved", event(1, record.Migrate, 1), func(*record.Metrics) {}, 2},
		{"placed", event(1, record.Place, 1), func(*record.Metrics) {}, 2},
		{"cuts", nil, func(m *record.Metrics) { m.Cuts = []int{0, 0, 2} }, 2},
		{"ranks", nil, func(m *record.Metrics) { m.Ranks = 1 }, 2},
		{"schedule", nil, func(m *record.Metrics) { m.Schedule = "list" }, 2},
		{"seconds", nil, func(m *record.Metrics) { m.StepSeconds = 2 }, 2},
	} {
		var run Run
		next := line
		next.Step, next.Steps, next.BalanceSeconds = 2, 6, 0.1
		c.change(&next)
		expect.OK(t, run.Step(line))
		for _, e := range c.events {
			expect.OK(t, run.Event(e))
		}
		expect.OK(t, run.Step(next))
		last := run.Segments[len(run.Segments)-1]
		if len(run.Segments) != c.want || last.Step+last.Steps != 8 || run.Steps != 8 {
			t.Errorf("%s: %+v", c.name, run.Segments)
		}
		if c.want == 1 && math.Abs(float64(last.BalanceSeconds)-0.2) > 1e-12 {
			t.Errorf("%s: balancing takes %v s in the mean, want 0.2", c.name, last.BalanceSeconds)
		}
	}
}
