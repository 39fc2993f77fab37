package search

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// options draws ragged stages, a third of the time with frozen ones in front.
func options(seed uint64, stages, microbatches int) schedule.ListOptions {
	rnd := random.Keyed(seed)
	o := schedule.ListOptions{Map: partition.Line(stages), Microbatches: microbatches}
	for range stages {
		o.Costs = append(o.Costs, cost.Stage{Forward: 0.5 + rnd.Float64(), Input: 0.5 + rnd.Float64(), Weight: 0.5 + rnd.Float64()})
		o.InFlight = append(o.InFlight, 1+rnd.IntN(2*stages))
	}
	if rnd.IntN(3) == 0 {
		for s := range stages / 3 {
			o.Costs[s].Input, o.Costs[s].Weight = 0, 0
		}
	}
	return o
}

// TestAutoKeepsToTheCap: Auto's schedule is legal under any cap. It is the fastest of the legal
// ones, and never slower than 1F1B where 1F1B is legal.
func TestAutoKeepsToTheCap(t *testing.T) {
	plain := 0
	for seed := range uint64(100) {
		stages := 1 + int(seed%8)
		o := options(seed, stages, 1+int(seed%13))
		evaluate := func(s schedule.Schedule) float64 {
			if err := s.Check(func(stage int) int { return o.InFlight[stage] }); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, s.Kind, err)
			}
			return sim.Makespan(s, o.Costs)
		}
		s, seconds := Auto(o, evaluate)
		if seconds != evaluate(s) {
			t.Errorf("seed %d: %s takes %v, not %v", seed, s.Kind, evaluate(s), seconds)
		}
		for _, other := range fixedSchedules(o) {
			if evaluate(other) < seconds {
				t.Errorf("seed %d: %s is faster than %s", seed, other.Kind, s.Kind)
			}
			if other.Kind == schedule.Kind1F1B {
				plain++
			}
		}
	}
	if plain < 20 {
		t.Errorf("1F1B kept to the cap in %d cases only", plain)
	}
}

// TestAutoLeavesOutWhatBreaksTheCap: each cap is one below what the kind needs.
func TestAutoLeavesOutWhatBreaksTheCap(t *testing.T) {
	const stages, microbatches = 4, 12
	for _, c := range []struct {
		inFlight int
		want     []schedule.Kind
	}{
		{12, []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2}},
		{11, []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2}},
		{6, []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1}},
		{3, nil},
	} {
		o := options(1, stages, microbatches)
		o.InFlight = slices.Repeat([]int{c.inFlight}, stages)
		var got []schedule.Kind
		for _, s := range fixedSchedules(o) {
			got = append(got, s.Kind)
		}
		if got = slices.Compact(got); !slices.Equal(got, c.want) {
			t.Errorf("cap %d: %v, want %v", c.inFlight, got, c.want)
		}
	}
}

// TestAutoTakesTheFirstOfEquals, so that all ranks take the same.
func TestAutoTakesTheFirstOfEquals(t *testing.T) {
	o := options(1, 4, 8)
	o.InFlight = nil
	if s, _ := Auto(o, func(schedule.Schedule) float64 { return 1 }); s.Kind != schedule.KindGPipe {
		t.Errorf("%s, want gpipe", s.Kind)
	}
}

// TestAutoWithMessages: where messages take twice as long as work, a list that
// knows of them is chosen, in half the time of 1F1B.
func TestAutoWithMessages(t *testing.T) {
	const stages, microbatches = 8, 16
	o := schedule.ListOptions{
		Costs:        slices.Repeat([]cost.Stage{{Forward: 1, Input: 1, Weight: 1}}, stages),
		Message:      slices.Repeat([]float64{2}, stages),
		Microbatches: microbatches,
	}
	network := sim.Network{Node: sim.Link{Latency: 2}}
	evaluate := func(s schedule.Schedule) float64 {
		return sim.Run(sim.Step{Schedule: s, Costs: o.Costs, Bytes: make([]int64, stages), Network: network}).Makespan()
	}
	plain, err := schedule.New(schedule.Kind1F1B, stages, 1, microbatches)
	expect.OK(t, err)
	if s, seconds := Auto(o, evaluate); s.Kind != schedule.KindList || seconds > 0.55*evaluate(plain) {
		t.Errorf("%s takes %v, 1f1b %v", s.Kind, seconds, evaluate(plain))
	}
}

// TestAutoUnderTightCaps: two microbatches in flight on every stage. The best of the
// lists that Auto once chose from took what before says; no schedule takes less than
// what is wanted (branch and bound).
func TestAutoUnderTightCaps(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	for _, c := range []struct {
		costs        []cost.Stage
		microbatches int
		before, want float64
	}{
		{[]cost.Stage{one.Scale(1.6), one.Scale(1.2), one.Scale(0.8), one.Scale(0.4)}, 8, 46.4, 43.2},
		{[]cost.Stage{{Forward: 4, Input: 4, Weight: 1}, {Forward: 3, Input: 2, Weight: 1}, {Forward: 3, Input: 1, Weight: 2}}, 3, 40, 36},
		{[]cost.Stage{{Forward: 0.1, Input: 1, Weight: 0.1}, {Forward: 1, Input: 0.1, Weight: 0.1}, {Input: 0.1, Weight: 0.1}}, 3, 6.7, 4.8},
	} {
		o := schedule.ListOptions{Costs: c.costs, Microbatches: c.microbatches, InFlight: slices.Repeat([]int{2}, len(c.costs))}
		s, seconds := Auto(o, func(s schedule.Schedule) float64 { return sim.Makespan(s, c.costs) })
		if err := s.Check(func(int) int { return 2 }); err != nil || math.Abs(seconds-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v, %v before: %v", c.costs, seconds, c.want, c.before, err)
		}
	}
}

// TestAutoOnAV: with fewer microbatches than the order of ZB-V is made for, a list on
// the same V takes less for its costs; with enough of them the order stays.
func TestAutoOnAV(t *testing.T) {
	const stages = 8
	m := partition.Map{Stages: stages, Chunks: 2, Vee: true}
	for _, c := range []struct {
		cost         cost.Stage
		microbatches int
		faster       float64 // times the order
	}{
		{cost.Stage{Forward: 1, Input: 1, Weight: 1}, stages, 1.127}, // the lower bound
		{cost.Stage{Forward: 1, Input: 1, Weight: 0.5}, stages, 1.148},
		{cost.Stage{Forward: 1, Input: 1.4, Weight: 0.9}, stages, 1.15},
		{cost.Stage{Forward: 1, Input: 1, Weight: 1}, 2 * stages, 1},
	} {
		o := schedule.ListOptions{
			Map: m, Costs: slices.Repeat([]cost.Stage{c.cost}, 2*stages), Microbatches: c.microbatches,
			InFlight: slices.Repeat([]int{2 * stages}, stages),
		}
		order := schedule.Schedule{Kind: schedule.KindZBV, Map: m, Microbatches: c.microbatches}
		for stage := range stages {
			order.Lists = append(order.Lists, schedule.ZBV(stage, stages, c.microbatches))
		}
		before := sim.Makespan(order, o.Costs)
		s, seconds := Auto(o, func(s schedule.Schedule) float64 { return sim.Makespan(s, o.Costs) })
		if err := s.Check(func(int) int { return 2 * stages }); err != nil || before < c.faster*seconds {
			t.Errorf("%+v, %d microbatches: %v, the order of ZB-V takes %v: %v", c.cost, c.microbatches, seconds, before, err)
		}
		if same := slices.EqualFunc(s.Lists, order.Lists, slices.Equal[[]schedule.Instr]); same != (c.faster == 1) {
			t.Errorf("%+v, %d microbatches: the order of ZB-V: %v", c.cost, c.microbatches, same)
		}
	}
}

// TestAutoOnAVOfFewMicrobatches: between stages and twice as many microbatches. Before is
// what auto took without the rules that take rounds. Want is the lower bound of the first two
// and else what the scheduler of ZB-V's authors takes, or less.
func TestAutoOnAVOfFewMicrobatches(t *testing.T) {
	for _, c := range []struct {
		stages, microbatches int
		cost                 cost.Stage
		message              float64
		before, want         float64
	}{
		{16, 22, cost.Stage{Forward: 1, Input: 1, Weight: 0.5}, 0, 129, 125},
		{24, 37, cost.Stage{Forward: 1, Input: 1, Weight: 0.5}, 0, 214.5, 208},
		{20, 26, cost.Stage{Forward: 1, Input: 1.4, Weight: 0.6}, 0.05, 202.7, 191.4},
		{20, 28, cost.Stage{Forward: 1, Input: 1, Weight: 0.5}, 0.2, 186.8, 181.3},
	} {
		o := schedule.ListOptions{
			Map: partition.Map{Stages: c.stages, Chunks: 2, Vee: true}, Costs: slices.Repeat([]cost.Stage{c.cost}, 2*c.stages),
			Message: slices.Repeat([]float64{c.message}, 2*c.stages-1), Microbatches: c.microbatches, InFlight: slices.Repeat([]int{2 * c.stages}, c.stages),
		}
		network := sim.Network{Node: sim.Link{Latency: c.message}}
		s, seconds := Auto(o, func(s schedule.Schedule) float64 {
			return sim.Run(sim.Step{Schedule: s, Costs: o.Costs, Bytes: make([]int64, 2*c.stages), Network: network}).Makespan()
		})
		if err := s.Check(func(int) int { return 2 * c.stages }); err != nil || seconds > c.want+1e-9 {
			t.Errorf("%d stages, %d microbatches, %+v: %v, want at most %v, %v before: %v", c.stages, c.microbatches, c.cost, seconds, c.want, c.before, err)
		}
	}
}
