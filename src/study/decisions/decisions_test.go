package decisions

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// drawn returns a case as a world.
func drawn(t *testing.T, c Case) *world {
	t.Helper()
	w, err := newWorld(c)
	expect.OK(t, err)
	return w
}

// TestFamilies: chains have 3 to 6 layers a stage, each with true seconds and, where
// weights are pruned, with fewer of them; uniform cuts are seldom the best.
func TestFamilies(t *testing.T) {
	for _, family := range Families() {
		good := 0
		pruned, lengths := family == "linear" || family == "pruned", make(map[int]bool)
		for seed := range uint64(10) {
			w := drawn(t, Case{Family: family, Noise: Noises[0], Scenario: Constant, Seed: seed, Size: Default().Size})
			layers := w.phases[0].layers
			lengths[len(layers)] = true
			if len(layers) < 24 || len(layers) > 48 {
				t.Fatalf("%s: %d layers", family, len(layers))
			}
			fewer := false
			for l, layer := range layers {
				if !(layer.Seconds() > 0) || layer.Bytes.Parameters == 0 {
					t.Fatalf("%s: layer %d: %+v", family, l, layer)
				}
				fewer = fewer || l > 1 && l < len(layers)-1 && layer.NonZeros != layers[1].NonZeros && !w.phases[0].shape.HalfGrain
			}
			if fewer != pruned {
				t.Errorf("%s: blocks differ in weights: %v, want %v", family, fewer, pruned)
			}
			x, err := w.newCompetitor("partition", "5", present)
			expect.OK(t, err)
			if largest, _ := w.regret(0, x.first); largest < answered {
				good++
			}
		}
		if len(lengths) < 3 || good > 3 {
			t.Errorf("%s: %d lengths of chains, of which uniform cuts suit %d", family, len(lengths), good)
		}
	}
}

// TestChanges: at every change the best cuts before lose at least a tenth, and only
// weights of blocks are lost.
func TestChanges(t *testing.T) {
	for _, family := range Families() {
		w := drawn(t, Case{Family: family, Noise: Noises[0], Scenario: Changes, Seed: 3, Size: Default().Size})
		if len(w.phases) < 2 {
			t.Errorf("%s: %d changes", family, len(w.phases)-1)
		}
		for k, p := range w.phases[1:] {
			before, _ := optimum(w.phases[k].seconds, 8, nil)
			if r, _ := w.regret(p.step, before); r < changed || !w.changes(p.step) || w.changes(p.step+1) || w.change(p.step).Kind == "" {
				t.Errorf("%s, step %d: the best cuts before are at %v", family, p.step, r)
			}
			for l, layer := range p.layers {
				if old := w.phases[k].layers[l]; layer.Seconds() > old.Seconds() || layer.NonZeros > old.NonZeros || layer.Seconds() < old.Seconds() != (layer.NonZeros < old.NonZeros) {
					t.Errorf("%s, step %d: layer %d is %+v, was %+v", family, p.step, l, layer, old)
				}
			}
		}
	}
}

// byHand returns a world of two stages and four layers, whose costs change at step
// 10, and of which the second rank is slow from step 100 on in SlowRank.
func byHand(s Scenario, steps int, phases ...[]float64) *world {
	w := &world{Case: Case{Noise: Noises[0], Scenario: s, Size: Size{Stages: 2, Microbatches: 4, Steps: steps}}, slowRank: 1}
	w.schedule, _ = schedule.New(schedule.Kind1F1B, 2, 1, 4)
	for k, seconds := range phases {
		p := phase{step: 10 * k}
		for _, x := range seconds {
			p.seconds = append(p.seconds, cost.Stage{Forward: x})
		}
		w.phases = append(w.phases, p)
	}
	return w
}

// after returns cuts after every step: those of the last entry at or before it.
func after(steps int, cuts map[int]int) []partition.Partition {
	list := make([]partition.Partition, steps)
	cut := 0
	for step := range list {
		if c, ok := cuts[step]; ok {
			cut = c
		}
		list[step] = partition.Partition{0, cut, 4}
	}
	return list
}

func TestJudge(t *testing.T) {
	even := []float64{1, 1, 1, 1} // best cut 2
	for _, c := range []struct {
		name  string
		w     *world
		first int
		cuts  map[int]int
		want  Verdict
	}{
		{"stays at the best", byHand(Constant, 10, even), 2, map[int]int{0: 2}, Verdict{Bottleneck: []float64{1, 1}, Regret: []float64{1, 1}}},
		{"finds it and leaves it", byHand(Constant, 15, even), 1, map[int]int{0: 1, 4: 2, 9: 3}, Verdict{Bottleneck: []float64{1, 1.5, 1.5}, Regret: []float64{1, 1.3, 1.3}, Moves: 2, Needless: 1}},
		// From 1 + 2/256 to 1 + 1/256: less than half a per cent.
		{"a gain too small", byHand(Constant, 5, []float64{1, 1. / 256, 1, 1. / 256}), 1, map[int]int{0: 2}, Verdict{Bottleneck: []float64{1}, Regret: []float64{1}, Moves: 1, Needless: 1}},
		{"moves between decisions", byHand(Constant, 5, even), 2, map[int]int{0: 2, 1: 3, 2: 2}, Verdict{Bottleneck: []float64{1}, Regret: []float64{1}, Moves: 2, Needless: 1}},
		// After the change at 10 the first layer is best alone: decisions at 14, 19.
		{"answers at the second", byHand(Changes, 25, even, []float64{3, 1, 1, 1}), 2, map[int]int{0: 2, 16: 1}, Verdict{Bottleneck: []float64{1, 1, 4. / 3, 1, 1}, Regret: []float64{1, 1, 1.2, 1, 1}, Moves: 1, Answers: []int{2}}},
		{"needs no answer", byHand(Changes, 20, even, []float64{0.5, 1, 1, 0.5}), 2, map[int]int{0: 2}, Verdict{Bottleneck: []float64{1, 1, 1, 1}, Regret: []float64{1, 1, 1, 1}, Answers: []int{0}}},
		{"answers only the next", byHand(Changes, 30, even, []float64{3, 1, 1, 1}, even), 2, map[int]int{0: 2}, Verdict{Bottleneck: []float64{1, 1, 4. / 3, 4. / 3, 1, 1}, Regret: []float64{1, 1, 1.2, 1.2, 1, 1}, Answers: []int{2, 0}}},
	} {
		got, err := c.w.judge("partition", partition.Partition{0, c.first, 4}, after(c.w.Steps, c.cuts))
		expect.OK(t, err)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	// 1 and 4.5 on a rank that is slow, then 3 and 1.5, as good as it gets.
	slow, err := byHand(SlowRank, 110, even).judge("partition", partition.Partition{0, 1, 4}, after(110, map[int]int{0: 1, 106: 3}))
	expect.OK(t, err)
	if !reflect.DeepEqual(slow.Answers, []int{2}) {
		t.Errorf("a slow rank: %+v", slow)
	}
}

// TestStepsMayGain: a move that leaves the bottleneck as it is is not needless where
// the other stages' loads make the step shorter; its way back is.
func TestStepsMayGain(t *testing.T) {
	w := drawn(t, Case{Family: "pruned", Noise: Noises[0], Scenario: Constant, Seed: 4, Size: Default().Size})
	p, err := w.planner("partition", "5")
	expect.OK(t, err)
	exact, best := optimum(w.truth(0), 8, nil)
	better := p.Improve(cost.Table{Layers: w.phases[0].layers}, exact).Cuts
	if b := bottleneck(w.truth(0), better, nil); b < (1-worth)*best || better.Equal(exact) {
		t.Fatalf("cuts %v of bottleneck %v, want others than %v that are no better by it", better, b, exact)
	}
	if !w.gains(0, exact, better) || w.gains(0, better, exact) || w.gains(0, exact, exact) {
		t.Errorf("from %v to %v: a gain is not seen, or one where there is none", exact, better)
	}
}

// TestDiffusionIsJudgedByItself: where diffusion ends although cuts of the same
// bottleneck make a faster step, a change is answered by what it would do if it knew
// the truth, and its regret under a noise may be so many times the one without.
func TestDiffusionIsJudgedByItself(t *testing.T) {
	w := drawn(t, Case{Family: "steps", Noise: Noises[0], Scenario: Constant, Seed: 4, Size: Default().Size})
	x, err := w.newCompetitor(diffusion, "5", present)
	expect.OK(t, err)
	cuts, _ := optimum(w.truth(0), 8, nil)
	best := w.seconds(0, cuts)
	own, err := w.goal(diffusion, 0, x.first)
	expect.OK(t, err)
	exact, err := w.goal("partition", 0, x.first)
	expect.OK(t, err)
	if own < 1.01*best || exact != best {
		t.Errorf("diffusion reaches %v, the exact balancer %v, the best is %v", own, exact, best)
	}
	run := func(noise Noise, regret float64) Run {
		return Run{Case{Family: "halves", Noise: noise, Scenario: Constant}, diffusion, "new", Verdict{Regret: []float64{regret}}}
	}
	runs := []Run{run(Noises[0], 1.25), run(Noises[1], 1.26)}
	if f := constant(runs, Noises[1], diffusion)[0]; f.Reach != 1.03*1.25 || !f.OK() {
		t.Errorf("%+v", f)
	}
	if f := constant(runs, Noises[0], diffusion)[0]; f.Reach != 0 {
		t.Errorf("%+v", f)
	}
}

func TestFigures(t *testing.T) {
	run := func(policy, family string, v Verdict) Run {
		return Run{Case{Family: family, Noise: Noises[1], Scenario: Constant}, "partition", policy, v}
	}
	regret := func(worst float64) []float64 {
		list := make([]float64, 20)
		for i := range list {
			list[i] = 1
		}
		list[3], list[7] = worst, 2 // the largest of twenty lies above the 95th percentile
		return list
	}
	runs := []Run{
		run("old", "linear", Verdict{Bottleneck: regret(1.5), Regret: regret(1.5), Moves: 4, Needless: 4}), run("old", "heavy", Verdict{Bottleneck: regret(1.2), Regret: regret(1.2), Moves: 1}),
		run("new", "linear", Verdict{Bottleneck: regret(1.08), Regret: regret(1.01), Moves: 1}), run("new", "heavy", Verdict{Bottleneck: regret(1.07), Regret: regret(1.04), Moves: 1, Needless: 1}),
	}
	want := []Figure{
		{Kind: RegretP95, Noise: "one-sided-20", Balancer: "partition", Family: "heavy", Old: 1.5, New: 1.04, Reach: 1.03},
		{Kind: LargestP95, Noise: "one-sided-20", Balancer: "partition", Family: "linear", Old: 1.5, New: 1.08},
		{Kind: Needless, Noise: "one-sided-20", Balancer: "partition", Old: 10, New: 2.5, Reach: 0.01},
		{Kind: Clean, Noise: "one-sided-20", Balancer: "partition", Old: 0.5, New: 0.5, Reach: 0.99},
		{Kind: Moves, Noise: "one-sided-20", Balancer: "partition", Old: 12.5, New: 5},
	}
	got := constant(runs, Noises[1], "partition")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i, ok := range []bool{false, true, false, false, true} {
		if got[i].OK() != ok {
			t.Errorf("%+v: OK is %v", got[i], !ok)
		}
	}
	runs[0].Scenario, runs[0].Answers, runs[2].Scenario, runs[2].Answers = Changes, []int{3, 1, 9}, Changes, []int{1, 1, 2}
	list := answers(runs, Noises[1], "partition", Changes)
	if len(list) != 2 || list[0].Old != 3 || list[0].New != 1 || list[1].Old != 9 || list[1].New != 2 || !list[1].OK() {
		t.Errorf("answers: %+v", list)
	}
	if list := answers(runs, Noises[1], "partition", SlowRank); list != nil {
		t.Errorf("there are no runs with a slow rank, but %+v", list)
	}
}

// TestRanksAgree: runs on ranks decide as simulated ones do, after every step: the
// pipeline, the profiler and the migration of training see what is simulated.
func TestRanksAgree(t *testing.T) {
	for _, c := range []Check{
		{Case: Case{"halves", noiseOf(t, "recorded"), Changes, 1, Size{4, 5, changeEvery + 10}}, Balancer: "diffusion"},
		{Case: Case{"pruned", noiseOf(t, "bursts"), SlowRank, 2, Size{3, 4, slowFrom + 10}}, Balancer: "partition"},
	} {
		n, err := c.differ("5")
		expect.OK(t, err)
		if n != 0 {
			t.Errorf("%s, %s: cuts differ after %d steps", c.Family, c.Balancer, n)
		}
	}
}

// TestRunsRepeat: equal seeds give equal verdicts, others do not; without noise the
// exact balancer is at the best from its first decision on, and moves once.
func TestRunsRepeat(t *testing.T) {
	c := Case{"linear", noiseOf(t, "one-sided-40"), Constant, 1, Size{4, 4, 40}}
	runs := func() []Run {
		list, err := c.runs("5")
		expect.OK(t, err)
		return list
	}
	a := runs()
	if b := runs(); !reflect.DeepEqual(verdicts(a), verdicts(b)) {
		t.Errorf("%+v and %+v", a, b)
	}
	c.Seed = 2
	if b := runs(); reflect.DeepEqual(verdicts(a), verdicts(b)) {
		t.Error("the seed does not matter")
	}
	c.Noise = Noises[0]
	for _, r := range runs()[:2] {
		if r.Moves != 1 || r.Needless != 0 || math.Abs(r.Regret[len(r.Regret)-1]-1) > 0.01 {
			t.Errorf("%s without noise: %+v", r.Policy, r.Verdict)
		}
	}
}

func verdicts(runs []Run) (list []Verdict) {
	for _, r := range runs {
		list = append(list, r.Verdict)
	}
	return list
}

// TestTime: either policy is timed, and their ratio.
func TestTime(t *testing.T) {
	list, err := timed(Case{"heavy", Noises[1], Changes, 1, Size{4, 4, 6}})
	expect.OK(t, err)
	if len(list) != 4 {
		t.Fatalf("%d figures", len(list))
	}
	for _, f := range list {
		if !(f.Old > 0) || !(f.New > 0) || (f.Reach > 0) != (f.Kind == SecondsRatio) {
			t.Errorf("%+v", f)
		}
	}
}

// TestCases: every noise meets every family with every seed, and options leave out
// all but what they name; runs on ranks have all noises, families and scenarios.
func TestCases(t *testing.T) {
	o := Default()
	seen, scenarios := make(map[string]bool), make(map[Scenario]bool)
	for _, c := range o.cases() {
		if c.Scenario == Constant {
			seen[c.Noise.Name+c.Family] = true
		}
	}
	if n := len(o.cases()); n != 20*6*(7+5+3) || len(seen) != 7*6 {
		t.Errorf("%d cases, %d pairs", n, len(seen))
	}
	for _, c := range o.checks() {
		seen[c.Noise.Name+c.Balancer], seen[c.Family], scenarios[c.Scenario] = true, true, true
	}
	if len(seen) != 7*6+7*2+6 || len(scenarios) != 3 {
		t.Errorf("checks have %v, %v", seen, scenarios)
	}
	o.Noises, o.Families, o.Seeds = []string{"bursts"}, []string{"heavy", "ends"}, 3
	if n := len(o.cases()); n != 3*2*2 {
		t.Errorf("%d cases of two families under bursts", n)
	}
}

// TestParallel: an error ends the work, and progress counts to the end without one.
func TestParallel(t *testing.T) {
	last, n := 0, 0
	expect.OK(t, parallel(10, func(done, all int) { last, n = done, n+all }, func(int) error { return nil }))
	if last != 10 || n != 100 {
		t.Errorf("%d done, %d in all", last, n)
	}
	want := errors.New("wrong")
	calls := 0 // one goroutine at a time counts
	err := parallel(1000, func(done, _ int) { calls = done }, func(i int) error {
		if i == 3 {
			return want
		}
		return nil
	})
	if err != want || calls == 1000 {
		t.Errorf("error %v after %d calls, want the first one's, and an end", err, calls)
	}
}
