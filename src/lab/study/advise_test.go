package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/search"
)

// chain returns settings of six blocks on a number of stages, and their costs. Each pass of a layer
// takes a millisecond, each pass of the head `head` milliseconds.
func chain(stages int, head float64) (config.Config, cost.Table) {
	c := config.Default()
	c.Model.Hidden, c.Model.Sequence = 32, 16
	c.Parallel.Stages, c.Parallel.Microbatches = stages, 8
	t := search.Dense(c)
	t.Clock = "sim"
	for l := range t.Layers {
		seconds := 1e-3
		if l == len(t.Layers)-1 {
			seconds *= head
		}
		t.Layers[l] = t.Layers[l].WithSeconds(cost.Stage{Forward: seconds, Input: seconds, Weight: seconds})
	}
	return c, t
}

// TestAdvise: advice keeps its promise, no advice is worse than another, and it names the settings
// that the chain lacks.
func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		name   string
		stages int
		head   float64
		change func(*config.Config)
		want   []string // settings that some advice has; nil: no advice at all
	}{
		{"gpipe holds and waits", 4, 1, func(c *config.Config) { c.Schedule.Kind = "gpipe" }, []string{"schedule.kind=auto", "schedule.kind=zb-h1"}},
		{"static cuts", 4, 3, func(c *config.Config) { c.Balance.Kind = "uniform" }, []string{"balance.kind=partition"}},
		{"a head of many blocks", 4, 15, func(*config.Config) {}, []string{"schedule.kind=auto", "model.grain=half", "model.head_shards=32"}},
		{"diffusion knows one chunk", 4, 1, func(c *config.Config) { c.Balance.Kind = "diffusion" }, []string{"balance.kind=partition", "schedule.kind=zb-v"}},
		{"one stage", 1, 1, func(*config.Config) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, costs := chain(c.stages, c.head)
			c.change(&settings)
			o := Options{Config: settings, Fixed: search.Fixed(settings)}
			present, err := Plan(costs, o)
			expect.OK(t, err)
			done, total := int64(0), int64(0)
			show := func(n, of int64) { done, total = n, of }
			tried := Trials(costs, o, show)
			if done == 0 || done != total {
				t.Errorf("%d of %d trials done", done, total)
			}
			list := Advise(costs, o, present, tried, show)
			if done == 0 || done != total {
				t.Errorf("%d of %d trials of finer layers done", done, total)
			}
			if c.want == nil && len(list) > 0 {
				t.Errorf("%+v", list[0])
			}
			first := slices.IndexFunc(list, func(a Advice) bool { return a.MadeUp })
			if c.head > 5 && !slices.Equal(list[first].Sets, []string{"model.grain=half", "model.head_shards=32", "schedule.kind=auto"}) {
				t.Errorf("%v is the first of those with made-up costs, want all three", list[first].Sets)
			}
			if first >= 0 && slices.ContainsFunc(list[first:], func(a Advice) bool { return !a.MadeUp }) {
				t.Errorf("advice with made-up costs comes before other advice: %+v", list)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(list, func(a Advice) bool { return slices.Contains(a.Sets, want) }) {
					t.Errorf("no advice to set %s: %+v", want, list)
				}
			}
			for _, a := range list {
				again, on := o, costs
				again.Config = a.Config
				again.Fixed = search.Fixed(a.Config)
				if a.MadeUp {
					on = finer(costs, settings, a.Config)
				}
				p, err := Plan(on, again)
				expect.OK(t, err)
				if p.Seconds != a.Step || slices.Max(p.Bytes) != a.Bytes {
					t.Errorf("%v: %v s and %d bytes, promised %v and %d", a.Sets, p.Seconds, slices.Max(p.Bytes), a.Step, a.Bytes)
				}
				if a.Faster < worthSeconds && a.Less < worthBytes {
					t.Errorf("%v gains %v of the time and %v of the memory", a.Sets, a.Faster, a.Less)
				}
				for _, b := range list {
					if a.MadeUp == b.MadeUp && b.Step < a.Step*(1-2*sameStep) && b.Bytes < a.Bytes {
						t.Errorf("%v is worse than %v", a.Sets, b.Sets)
					}
				}
			}
		})
	}
}

// TestFiner: pieces of a chain are those of the settings, and together cost and hold
// what the whole did.
func TestFiner(t *testing.T) {
	for _, kind := range []string{"none", "mod"} {
		checkFiner(t, kind)
	}
}

func checkFiner(t *testing.T, kind string) {
	settings, whole := chain(2, 4)
	if settings.Dynamic.Kind = kind; kind == "mod" {
		whole.Layers = search.Dense(settings).Layers
		for i := range whole.Layers {
			whole.Layers[i].Forward = 1
		}
	}
	for _, grain := range []string{"block", "half"} {
		for _, shards := range []int{1, 4} {
			next := settings
			next.Model.Grain, next.Model.HeadShards = grain, shards
			want := search.Dense(next)
			got := finer(whole, settings, next)
			if len(got.Layers) != next.Layers() {
				t.Fatalf("%s, %d slices: %d layers, want %d", grain, shards, len(got.Layers), next.Layers())
			}
			var a, b cost.Stage
			for _, l := range whole.Layers {
				a = a.Plus(l.Stage())
			}
			for i, l := range got.Layers {
				b = b.Plus(l.Stage())
				if d := want.Layers[i]; l.Name != d.Name || l.Bytes != d.Bytes || l.NonZeros != d.NonZeros || l.Output != d.Output {
					t.Errorf("%s, %d slices: %+v, the dense chain has %+v", grain, shards, l, d)
				}
				if strings.HasSuffix(l.Name, ".attention") && l.Forward >= got.Layers[i+1].Forward {
					t.Errorf("%s takes %v s, the MLP %v s", l.Name, l.Forward, got.Layers[i+1].Forward)
				}
			}
			if math.Abs(b.Seconds()/a.Seconds()-1) > 1e-12 {
				t.Errorf("%s, %d slices: %v s, the whole %v s", grain, shards, b.Seconds(), a.Seconds())
			}
		}
	}
}
