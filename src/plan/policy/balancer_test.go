package policy

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// asked is a balancer, and the layout that it is asked about.
type asked struct {
	t testing.TB
	Balancer
	now layout.Layout
}

func problem(t testing.TB, c config.Config, n sim.Network) *search.Problem {
	t.Helper()
	p, err := search.New(c, n, nil)
	expect.OK(t, err)
	return p
}

// begin returns the step of some costs before there is a layout.
func begin(p *search.Problem, costs cost.Table) *search.Step { return p.Step(costs, layout.Layout{}) }

// ask returns the balancer of settings on a network, in the first layout of a dense chain.
func ask(t testing.TB, c config.Config, n sim.Network, dense cost.Table, o Options) *asked {
	t.Helper()
	p := problem(t, c, n)
	b, err := New(p, o)
	expect.OK(t, err)
	first, err := begin(p, dense).FirstLayout()
	expect.OK(t, err)
	return &asked{t, b, first}
}

// newAsked returns the balancer of settings, on uniform cuts of 16 equal layers.
func newAsked(t *testing.T, c config.Config, repack float64) *asked {
	t.Helper()
	if repack > 0 {
		c.Repack.Kind, c.Repack.Tolerance = "sustain", repack
	}
	return ask(t, c, plantest.Link, plantest.Chain(16, 0, 0), Options{})
}

// after returns the answer after a step with some costs, and goes by it.
func (a *asked) after(costs cost.Table, changed bool) plan.Reason {
	a.t.Helper()
	return a.shown(profile.Measurement{Measurement: cost.Measurement{Table: costs}, Changed: changed, Summary: trace.Summary{End: 1}})
}

// shown returns the answer to a measurement, and goes by it.
func (a *asked) shown(m profile.Measurement) plan.Reason {
	a.t.Helper()
	next, why, err := a.Decide(m, a.now)
	expect.OK(a.t, err)
	a.now = next
	return why
}

// heavy returns a chain whose first layer costs more than the others.
func heavy(times float64) cost.Table {
	t := plantest.Chain(16, 0, 0)
	t.Layers[0].Forward *= times
	return t
}

func every(steps string, kind string) config.Config {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Kind, c.Balance.Every = kind, steps
	return c
}

// TestDecide: decisions are made when they are due, by all that the costs say,
// and a decision to stay is told like any other.
func TestDecide(t *testing.T) {
	for _, kind := range []string{"partition", "diffusion"} {
		a := newAsked(t, every("2", kind), 0)
		first := a.now
		if why := a.after(heavy(9), false); why.Decided || !a.now.Equal(first) {
			t.Errorf("%s: %+v after the first of two steps", kind, why)
		}
		moved := a.after(heavy(9), false)
		if !moved.Decided || a.now.Cuts.Equal(first.Cuts) || !(moved.Predicted > 0) || moved.Bottleneck < moved.Optimum {
			t.Errorf("%s: %+v, want layers to move", kind, moved)
		}
		second := a.now
		var stays [2]plan.Reason
		for i := range stays {
			a.after(heavy(9), false)
			stays[i] = a.after(heavy(9), false)
			if !stays[i].Decided || !a.now.Equal(second) || (stays[i].Diffusion != nil) != (kind == "diffusion") {
				t.Errorf("%s: %+v, want layers to stay, and how that was found", kind, stays[i])
			}
		}
		if !reflect.DeepEqual(stays[0], stays[1]) {
			t.Errorf("%s: %+v and %+v on the same costs", kind, stays[0], stays[1])
		}
		costs := heavy(9)
		costs.Fixed = []float64{0, 0, 0, 5e-2}
		a.after(costs, false)
		if a.after(costs, false); a.now.Cuts[3] <= second.Cuts[3] {
			t.Errorf("%s: %v before the last stage had fixed seconds, %v with them", kind, second.Cuts, a.now.Cuts)
		}
	}
}

// TestDecideNothing: where layers may not move and the schedule follows from
// numbers, there is nothing to decide.
func TestDecideNothing(t *testing.T) {
	a := newAsked(t, every("1", "uniform"), 0)
	first := a.now
	for range 3 {
		if why := a.after(heavy(9), false); !reflect.DeepEqual(why, plan.Reason{}) || !a.now.Equal(first) {
			t.Errorf("%+v, want no decision", why)
		}
	}
}

// TestDecideWithoutMemory: that no cuts fit is told once until the model changes.
func TestDecideWithoutMemory(t *testing.T) {
	c := every("1", "partition")
	c.Balance.MemoryLimitBytes = 20_000
	a := newAsked(t, c, 0)
	first := a.now
	full := heavy(9)
	for l := range full.Layers {
		full.Layers[l].Bytes.Parameters = 1 << 20
	}
	for i, want := range []bool{true, false, true, false} {
		if why := a.after(full, i == 2); (why.Full != nil) != want || why.Decided || !a.now.Equal(first) {
			t.Errorf("step %d: %+v, want %v that memory allows nothing", i, why, want)
		}
	}
}

// TestDecideOnNothing: some or all layers cost no measurable time. They move without harm.
func TestDecideOnNothing(t *testing.T) {
	free := plantest.Chain(16, 0, 0)
	for l := range free.Layers {
		free.Layers[l].Forward, free.Layers[l].BackwardInput, free.Layers[l].BackwardWeight = 0, 0, 0
	}
	one := cost.Table{Clock: "wall", Layers: slices.Clone(free.Layers)}
	one.Layers[5].Forward = 1e-3
	for _, every := range []string{"1", "auto"} {
		for _, kind := range []string{"partition", "diffusion"} {
			for _, s := range []schedule.Kind{schedule.Kind1F1B, schedule.KindAuto} {
				c := plantest.Settings(s, 16, 4, 8)
				c.Balance.Kind, c.Balance.Every = kind, every
				a := ask(t, c, sim.Network{}, free, Options{})
				for _, costs := range []cost.Table{free, one, free, one, one, one, one} {
					why := a.after(costs, false)
					if err := a.now.Check(16); err != nil || math.IsNaN(why.Bottleneck) || math.IsInf(balance.Gap(why.Bottleneck, why.Optimum), 0) {
						t.Errorf("every %s, %s, %s: %+v, %v", every, kind, s, why, err)
					}
				}
			}
		}
	}
}

// TestDecideAlike: what only some ranks know changes no answer.
func TestDecideAlike(t *testing.T) {
	c := plantest.Settings(schedule.KindAuto, 16, 4, 8)
	c.Balance.Every = "auto"
	a, b := newAsked(t, c, 0), newAsked(t, c, 0)
	p := problem(t, c, plantest.Link)
	for step := range 40 {
		costs := plantest.Chain(16, 2, uint64(step/10))
		ran, err := p.Simulate(cost.Phase{Table: costs}, a.now, step)
		expect.OK(t, err)
		m := profile.Measurement{Measurement: cost.Measurement{Table: costs}, Changed: step%10 == 0, Summary: ran.Step.Summary}
		next, why, err := a.Decide(m, a.now)
		expect.OK(t, err)
		m.Instructions = ran.Step.Spans
		other, because, err := b.Decide(m, b.now)
		if err != nil || !next.Equal(other) || !reflect.DeepEqual(why, because) {
			t.Fatalf("step %d: %v, %+v and %v, %+v: %v", step, next, why, other, because, err)
		}
		a.now, b.now = next, other
	}
}

// TestDecideRepacks: layers that have become cheap get along with fewer stages,
// and go on being balanced there.
func TestDecideRepacks(t *testing.T) {
	a := newAsked(t, every("1", "partition"), 0.2)
	a.after(plantest.Chain(16, 0, 0), false)
	cheap := scaled(heavy(9), times(1e-3))
	a.after(cheap, true)
	if a.now.Stages() != 1 || !a.now.Cuts.Equal(partition.Partition{0, 16}) || a.now.Mesh.Stages != 1 {
		t.Errorf("%v on %d stages, want one", a.now.Cuts, a.now.Stages())
	}
	if why := a.after(cheap, false); !why.Decided || a.now.Stages() != 1 {
		t.Errorf("%+v on %d stages, want to stay on one", why, a.now.Stages())
	}
}

// TestDecideRepacksBelowTheBalanced: what may be given up is throughput of the balanced
// model, not of the first cuts, and every packing counts from there.
func TestDecideRepacksBelowTheBalanced(t *testing.T) {
	a := newAsked(t, every("1", "partition"), 0.1)
	for range 5 {
		a.after(heavy(9), false)
		if a.now.Stages() != 4 {
			t.Fatalf("%d stages, though nothing has become cheaper", a.now.Stages())
		}
	}
	cheaper := scaled(heavy(9), times(0.7))
	for range 5 {
		a.after(cheaper, false)
	}
	if a.now.Stages() == 4 {
		t.Error("4 stages, though all layers have become cheaper by 30 %")
	}
	p := problem(t, every("1", "partition"), plantest.Link)
	step := begin(p, heavy(9))
	balanced, err := step.BestLayout()
	expect.OK(t, err)
	fewer, err := begin(p, cheaper).Resize(a.now.Stages(), p.Microbatches)
	expect.OK(t, err)
	if now, most := fewer.Seconds(fewer.Layout(a.now.Cuts)), step.Seconds(balanced)/0.9; now > most {
		t.Errorf("a step takes %v on %d stages, more than %v", now, a.now.Stages(), most)
	}
}

// TestDecidePacks: the user names the step and the number of stages, whatever it costs.
func TestDecidePacks(t *testing.T) {
	dense := plantest.Chain(16, 0, 0)
	a := ask(t, every("50", "partition"), plantest.Link, dense, Options{Pack: map[int]int{3: 2, 5: 1}})
	var stages []int
	for range 6 {
		a.shown(estimated(dense, 0.001))
		stages = append(stages, a.now.Stages())
	}
	if !slices.Equal(stages, []int{4, 4, 2, 2, 1, 1}) {
		t.Errorf("%v stages after each step", stages)
	}
}
