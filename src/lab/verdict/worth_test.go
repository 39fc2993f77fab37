package verdict

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// worthMicrobatches is a number of microbatches at which the fill of two stages hardly counts.
const worthMicrobatches = 64

// ran returns a phase of a run on two stages whose layers cost such milliseconds: a
// third for each of forward, input and weight.
func ran(t *testing.T, step, steps int, change string, cut int, milliseconds ...float64) record.Phase {
	t.Helper()
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, worthMicrobatches)
	expect.OK(t, err)
	table := cost.Table{Clock: "virtual"}
	for _, ms := range milliseconds {
		table.Layers = append(table.Layers, cost.Layer{Forward: ms * 1e-3 / 3, BackwardInput: ms * 1e-3 / 3, BackwardWeight: ms * 1e-3 / 3})
	}
	cuts := partition.Partition{0, cut, len(milliseconds)}
	return record.Phase{
		Phase: cost.Phase{Step: step, Steps: steps, Model: "m", Change: change, Table: table},
		Run:   &record.Course{Layout: layout.New(cuts, order, 1, layout.StageMajor), Makespan: 1},
	}
}

// noisy returns the phase as measured with multiplicative noise of the given size in every sample.
// A disturbance makes all layers slower by the factor disturbed.
func noisy(p record.Phase, size, disturbed float64, seed uint64) record.Phase {
	r := random.Keyed(seed, uint64(p.Step))
	p.Samples = make([][][]cost.Stage, 6)
	for step := range p.Samples {
		for range p.Layers {
			var row []cost.Stage
			for range 8 {
				x := disturbed * math.Exp(size*r.NormFloat64())
				row = append(row, cost.Stage{Forward: x, Input: x, Weight: x})
			}
			p.Samples[step] = append(p.Samples[step], row)
		}
	}
	layers := append([]cost.Layer(nil), p.Layers...)
	for l := range layers {
		measured := layers[l].Stage().Times(location(p.Samples, l))
		for _, rows := range p.Samples {
			for m := range rows[l] {
				rows[l][m] = layers[l].Stage().Times(rows[l][m]).Over(measured)
			}
		}
		layers[l] = layers[l].WithSeconds(measured)
	}
	p.Layers = layers
	return p
}

func worthProblem(t *testing.T, layers int) *search.Problem {
	t.Helper()
	p, err := search.New(plantest.Settings(schedule.Kind1F1B, layers, 2, worthMicrobatches), sim.Uniform(0, 0), nil)
	expect.OK(t, err)
	return p
}

// near reports whether two numbers agree within a share.
func near(a, b, share float64) bool { return math.Abs(a-b) <= share*math.Abs(b) }

// TestWorth: without noise, totals and ratios are those of the simulator, and nothing
// else.
func TestWorth(t *testing.T) {
	// Of six layers the first two become dear: 3 + 3 ms a stage become 11 and 3. From then on the
	// best cut is behind the first layer or the second.
	series := record.Series{
		ran(t, 0, 10, "", 3, 1, 1, 1, 1, 1, 1),
		ran(t, 10, 2, "prune", 3, 5, 5, 1, 1, 1, 1),
		ran(t, 12, 8, "", 2, 5, 5, 1, 1, 1, 1),
	}
	series[1].Run.Balancing, series[0].Run.Rest = 0.25, 0.5
	step := func(phase, cut int) float64 {
		p := series[phase]
		cuts := partition.Partition{0, cut, len(p.Layers)}
		order := p.Run.Layout.Schedule
		return sim.Makespan(order, p.Stages(cuts, order.Map))
	}
	w, err := Measure(worthProblem(t, 6), series)
	expect.OK(t, err)
	static := 10*(step(0, 3)+0.5) + 10*step(1, 3)
	used := 10*(step(0, 3)+0.5) + 2*step(1, 3) + 8*step(2, 2) + 0.25
	best := 10*(step(0, 3)+0.5) + 10*min(step(1, 1), step(1, 2))
	want := Result{
		Clock: "virtual", Steps: 20, Static: static, Used: used, Best: best, Price: 0.25, Speedup: static / used,
		Ceiling: static / best, Low: static / used, High: static / used, Moved: true,
	}
	if !near(w.Static, static, 1e-12) || !near(w.Used, used, 1e-12) || !near(w.Best, best, 1e-12) ||
		w.Speedup != w.Static/w.Used || w.Ceiling != w.Static/w.Best || w.Low != w.Speedup || w.High != w.Speedup ||
		w.Price != 0.25 || !w.Moved || w.Draws != 0 || w.Steps != 20 || w.Clock != "virtual" {
		t.Errorf("got  %+v\nwant %+v", w, want)
	}
	sums := Result{Used: w.Price}
	for i, p := range Phases(worthProblem(t, 6), series) {
		if n := float64(series[i].Steps); p.Step != series[i].Step {
			t.Errorf("phase %d begins at step %d, want %d", i, p.Step, series[i].Step)
		} else {
			sums.Static, sums.Used, sums.Best = sums.Static+n*p.Static, sums.Used+n*p.Used, sums.Best+n*p.Best
		}
	}
	if !near(sums.Static, w.Static, 1e-12) || !near(sums.Used, w.Used, 1e-12) || !near(sums.Best, w.Best, 1e-12) {
		t.Errorf("phases sum up to %+v, want %+v", sums, w)
	}
	if w.IsNoise() {
		t.Errorf("%+v: within noise, where there is none", w)
	}
	still, err := Measure(worthProblem(t, 6), series[:2])
	expect.OK(t, err)
	if still.Moved || still.Used != still.Static+0.25 || still.Speedup != still.Static/still.Used || still.Price != 0.25 || still.Ceiling <= 1 {
		t.Errorf("layers that never moved: %+v, want the price in the speedup, and a ceiling above 1", still)
	}
	fixed := worthProblem(t, 6)
	fixed.Config.Balance.Kind = "uniform"
	if still, err = Measure(fixed, series[:2]); err != nil || still.Speedup != 1 || still.Price != 0 {
		t.Errorf("a balancer that never moves: %+v, %v, want no price", still, err)
	}
	series[0].Run, series[1].Run, series[2].Run = nil, nil, nil
	if list := Phases(worthProblem(t, 6), series); len(list) > 0 {
		t.Errorf("phases %v of no run", list)
	}
	if _, err := Measure(worthProblem(t, 6), series); !errors.Is(err, ErrNotRun) {
		t.Errorf("error %v, want %v", err, ErrNotRun)
	}
}

// TestWorthOfNoise: on layers that cost the same, moving is within noise however long
// the run; on others the spread holds what is true. The same series has the same worth.
func TestWorthOfNoise(t *testing.T) {
	equal, unequal := []float64{1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 4}
	for _, c := range []struct {
		name  string
		costs []float64
		from  int
		to    int
		noise bool
	}{
		{"mirrored cuts of equal layers", equal, 2, 3, true},
		{"from bad cuts to the best", unequal, 2, 4, false},
		{"from the best cuts to bad ones", unequal, 4, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			exact := record.Series{ran(t, 0, 5, "", c.from, c.costs...), ran(t, 5, 50, "", c.to, c.costs...)}
			truth, err := Measure(worthProblem(t, 5), exact)
			expect.OK(t, err)
			var series record.Series
			for _, p := range exact {
				series = append(series, noisy(p, 0.2, 1, 7))
			}
			w, err := Measure(worthProblem(t, 5), series)
			expect.OK(t, err)
			if w.Draws < leastDraws || !(w.Low < w.High) {
				t.Fatalf("%+v: no spread", w)
			}
			if w.IsNoise() != c.noise {
				t.Errorf("within noise: %v, want %v: %+v", w.IsNoise(), c.noise, w)
			}
			if truth.Speedup < w.Low-0.01 || truth.Speedup > w.High+0.01 {
				t.Errorf("%.3f to %.3f, the truth is %.3f", w.Low, w.High, truth.Speedup)
			}
			again, err := Measure(worthProblem(t, 5), series)
			expect.OK(t, err)
			if !reflect.DeepEqual(w, again) {
				t.Errorf("%+v, again %+v", w, again)
			}
		})
	}
}

// TestWorthOfSpuriousSlowness: a rank that is taken for slow in a few steps changes
// nothing; one that is known to be slow stays slow for the static cuts too.
func TestWorthOfSpuriousSlowness(t *testing.T) {
	costs := []float64{1, 1, 1, 1, 1, 1}
	slow := func(p record.Phase) record.Phase { // the layers of stage 0 take three times as long as they say
		p.Slow = []float64{3, 1}
		return p
	}
	misled := ran(t, 12, 3, "", 2, 1./3, 1./3, 1, 1, 1, 1)
	for _, c := range []struct {
		name   string
		series record.Series
		want   float64
	}{
		{"spurious", record.Series{ran(t, 0, 10, "", 3, costs...), ran(t, 10, 2, "", 2, costs...), slow(misled), ran(t, 15, 85, "", 3, costs...)}, 1},
		{"real", record.Series{ran(t, 0, 1, "", 3, 3, 3, 3, 1, 1, 1), slow(ran(t, 1, 99, "", 2, costs...))}, 9. / 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := Measure(worthProblem(t, 6), c.series)
			expect.OK(t, err)
			if !near(w.Speedup, c.want, 0.03) {
				t.Errorf("%.3fx, want about %.3fx", w.Speedup, c.want)
			}
		})
	}
}

// TestCompare: what only noise made different, pooled costs make equal; runs of other
// work are refused.
func TestCompare(t *testing.T) {
	costs, later := []float64{1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 4}
	p := worthProblem(t, 5)
	calm := record.Series{noisy(ran(t, 0, 20, "", 2, costs...), 0.02, 1, 1), noisy(ran(t, 20, 80, "prune", 2, later...), 0.02, 1, 1)}
	busy := record.Series{noisy(ran(t, 0, 20, "", 2, costs...), 0.02, 1.5, 2), noisy(ran(t, 20, 80, "prune", 2, later...), 0.02, 1.5, 2)}
	moved := record.Series{
		noisy(ran(t, 0, 20, "", 2, costs...), 0.02, 1.5, 3),
		noisy(ran(t, 20, 10, "prune", 2, later...), 0.02, 1.5, 3), noisy(ran(t, 30, 70, "", 4, later...), 0.02, 1.5, 3),
	}
	list, static, err := Compare([]Run{{p, moved}, {p, calm}, {p, busy}})
	expect.OK(t, err)
	if static != 1 || list[1].Used != list[2].Used || list[1].Speedup != 1 || list[2].Speedup != 1 || !list[2].IsNoise() {
		t.Errorf("with the same cuts, calm and busy: %+v, %+v: want the same", list[1], list[2])
	}
	exact, err := Measure(p, record.Series{ran(t, 0, 20, "", 2, costs...), ran(t, 20, 10, "prune", 2, later...), ran(t, 30, 70, "", 4, later...)})
	expect.OK(t, err)
	if w := list[0]; !w.Moved || w.Static != list[1].Static || !near(w.Speedup, exact.Speedup, 0.02) || !(w.Low <= w.Speedup && w.Speedup <= w.High) || w.IsNoise() {
		t.Errorf("%+v, want a speedup of about %.3f", w, exact.Speedup)
	}
	alone, static, err := Compare([]Run{{p, moved}})
	expect.OK(t, err)
	if static != -1 || !near(alone[0].Speedup, exact.Speedup, 0.02) {
		t.Errorf("beside no other run %.3fx, want about %.3fx", alone[0].Speedup, exact.Speedup)
	}
	if DescribeWork(calm) != DescribeWork(moved) {
		t.Errorf("%q and %q, want the same work", DescribeWork(calm), DescribeWork(moved))
	}
	for name, other := range map[string]record.Series{"fewer steps": calm[:1], "another change": {calm[0], ran(t, 20, 80, "freeze", 2, later...)}, "not run": nil} {
		if _, _, err := Compare([]Run{{p, calm}, {p, other}}); err == nil || DescribeWork(other) == DescribeWork(calm) {
			t.Errorf("%s: compared", name)
		}
	}
}

// TestCompareWithTheBestStaticRun: in every order the runs are compared with the fastest one that never moved
// layers, so that moving gets no credit for what other static cuts give too.
func TestCompareWithTheBestStaticRun(t *testing.T) {
	costs := []float64{1, 1, 1, 1, 4}
	p := worthProblem(t, 5)
	even, better := Run{p, record.Series{ran(t, 0, 100, "", 2, costs...)}}, Run{p, record.Series{ran(t, 0, 100, "", 3, costs...)}}
	moving := Run{p, record.Series{ran(t, 0, 10, "", 2, costs...), ran(t, 10, 90, "", 4, costs...)}}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		runs, all := make([]Run, 3), []Run{even, better, moving}
		for i, of := range order {
			runs[i] = all[of]
		}
		list, static, err := Compare(runs)
		expect.OK(t, err)
		if static < 0 || order[static] != 1 {
			t.Errorf("order %v: compared with run %d, want the one with the better cuts", order, static)
			continue
		}
		// Bottlenecks of a microbatch are 6, 5 and 4 ms.
		for i, of := range order {
			if want := []float64{5. / 6, 1, 5 / (0.1*6 + 0.9*4)}[of]; !near(list[i].Speedup, want, 0.02) {
				t.Errorf("order %v, run %d: %.3fx, want about %.3fx", order, i, list[i].Speedup, want)
			}
		}
	}
}

// TestCompareSimulated: simulated runs that did the same work are compared, each on its own costs. They have
// no interval.
func TestCompareSimulated(t *testing.T) {
	p := worthProblem(t, 4)
	simulated := func(cut int, costs ...float64) record.Series {
		series := record.Series{ran(t, 0, 5, "", 2, costs...), ran(t, 5, 50, "", cut, costs...)}
		for i := range series {
			series[i].Run.Simulated = true
		}
		return series
	}
	static, moving := simulated(2, 1, 1, 1, 3), simulated(3, 1, 1, 1, 3)
	want, err := Measure(p, moving)
	expect.OK(t, err)
	list, _, err := Compare([]Run{{p, static}, {p, moving}, {p, simulated(3, 2, 2, 2, 2)}})
	expect.OK(t, err)
	if got := list[1]; !near(got.Speedup, want.Speedup, 1e-9) || got.Draws != 0 || !(got.Speedup > 1.2) {
		t.Errorf("%+v, want %+v as alone", got, want)
	}
	if got := list[2]; !(got.Speedup < 1) {
		t.Errorf("on other costs %+v, want a speedup below 1", got)
	}
}

// TestCompareWithoutSamples: files of older versions pool too, and have no spread.
func TestCompareWithoutSamples(t *testing.T) {
	p := worthProblem(t, 4)
	list, _, err := Compare([]Run{{p, record.Series{ran(t, 0, 5, "", 2, 1, 1, 1, 1)}}, {p, record.Series{ran(t, 0, 5, "", 2, 2, 2, 2, 2)}}})
	expect.OK(t, err)
	if list[0] != list[1] || list[0].Draws != 0 {
		t.Errorf("%+v and %+v, want the same and no draws", list[0], list[1])
	}
}

// TestWorthOfLongRun: of more phases than are simulated, every step counts.
func TestWorthOfLongRun(t *testing.T) {
	short := record.Series{ran(t, 0, 500, "", 2, 1, 1, 1, 5), ran(t, 500, 500, "", 3, 1, 1, 1, 5)}
	var long record.Series
	for i := range 1000 {
		p := short[i/500]
		p.Step, p.Steps = i, 1
		long = append(long, p)
	}
	want, err := Measure(worthProblem(t, 4), short)
	expect.OK(t, err)
	got, err := Measure(worthProblem(t, 4), long)
	expect.OK(t, err)
	if got.Steps != 1000 || !near(got.Speedup, want.Speedup, 1e-9) || !near(got.Static, want.Static, 1e-9) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
