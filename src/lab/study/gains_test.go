package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
)

// TestGains: settings that would shorten a step are named with a factor that a plan of these settings keeps, and
// where nothing would, nothing is named.
func TestGains(t *testing.T) {
	for _, c := range []struct {
		name   string
		stages int
		head   float64
		change func(*config.Config)
		want   string // part of the settings of some gain; "": none
	}{
		{"static cuts", 4, 3, func(c *config.Config) { c.Balance.Kind = "uniform" }, "balance.kind=partition"},
		{"a head of many blocks", 4, 15, func(*config.Config) {}, "model.head_shards=32"},
		{"a pipeline that replicas beat", 2, 1, func(c *config.Config) { c.Parallel.Microbatches = 2 }, "parallel.stages=1"},
		{"one rank", 1, 1, func(*config.Config) {}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, costs := chain(c.stages, c.head)
			settings.Comm.BandwidthBytes = 1e12
			c.change(&settings)
			o := Options{Config: settings, Fixed: search.Fixed(settings)}
			present, err := Plan(costs, o)
			expect.OK(t, err)
			gains, err := Gains(costs, o)
			expect.OK(t, err)
			named := false
			last := 1.0
			for i, g := range gains {
				if i > 0 && gains[i-1].MadeUp != g.MadeUp {
					if last = 1; !g.MadeUp {
						t.Errorf("%v on measured costs come after %v on made-up ones", g.Sets, gains[i-1].Sets)
					}
				}
				named = named || slices.ContainsFunc(g.Sets, func(set string) bool { return strings.HasPrefix(set, c.want) })
				if g.Factor < last/(1-worthSeconds)-1e-9 {
					t.Errorf("%v: %v times, after %v", g.Sets, g.Factor, last)
				}
				last = g.Factor
				if g.MadeUp {
					continue // the costs of finer layers are not those at hand
				}
				next, changed := o, settings
				for _, set := range g.Sets {
					name, value, _ := strings.Cut(set, "=")
					changed.Assign(name, assigned(value))
				}
				next.Config, next.Fixed = changed, search.Fixed(changed)
				plan, err := Plan(costs, next)
				expect.OK(t, err)
				if got := present.Seconds / plan.Seconds; math.Abs(got/g.Factor-1) > 1e-6 {
					t.Errorf("%v: %v times, planned %v", g.Sets, g.Factor, got)
				}
			}
			if named != (c.want != "") {
				t.Errorf("%+v, want one with %q", gains, c.want)
			}
		})
	}
}

// assigned returns a value as Assign takes it.
func assigned(text string) any {
	n := 0
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			return text
		}
		n = 10*n + int(digit-'0')
	}
	return n
}

// TestPruningMovesNoStaticCuts: a balancer that never moves layers cuts the dense chain. After a pruning its plan
// has the cuts that the run has.
func TestPruningMovesNoStaticCuts(t *testing.T) {
	settings, costs := chain(4, 1)
	settings.Balance.Kind = "param"
	o := Options{Config: settings, Fixed: search.Fixed(settings)}
	dense, err := Plan(costs, o)
	expect.OK(t, err)
	for l := range costs.Layers[:4] { // the first blocks are left with few weights, and with little work
		costs.Layers[l].NonZeros /= 100
		costs.Layers[l] = costs.Layers[l].WithSeconds(cost.Stage{Forward: 1e-5, Input: 1e-5, Weight: 1e-5})
	}
	p, err := search.New(settings, o.Network, o.Fixed)
	expect.OK(t, err)
	anew, err := p.Step(costs, layout.Layout{}).FirstLayout()
	expect.OK(t, err)
	if slices.Equal(anew.Cuts, dense.Layout.Cuts) {
		t.Fatal("the weights that are left would be cut as all weights are: the test tests nothing")
	}
	pruned, err := Plan(costs, o)
	expect.OK(t, err)
	if !slices.Equal(pruned.Layout.Cuts, dense.Layout.Cuts) {
		t.Errorf("cuts %v after pruning, want %v", pruned.Layout.Cuts, dense.Layout.Cuts)
	}
}
