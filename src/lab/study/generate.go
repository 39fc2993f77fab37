package study

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// Generate makes up the costs of a dynamic training run, for studies without
// one: from the measured costs of the dense model and a kind of dynamism, what
// each layer costs in each of the run's steps. Consecutive steps that cost the
// same share a phase. What is assumed is settings (dynamic.Workloads()), as are seed
// and microbatches. interval is how many changes of the model one stands for that is
// simulated; 0 chooses, and says in the Sampling what. The tables keep the clock and the
// device of the dense costs.
func Generate(name string, dense cost.Table, o *Options, run dynamic.MadeUp, interval int) (cost.Series, error) {
	fail := func(err error) (cost.Series, error) { return nil, err }
	c := o.Config
	k := slices.IndexFunc(dynamic.Workloads(), func(w dynamic.NamedWorkload) bool { return w.Name == name })
	if k < 0 {
		return fail(fmt.Errorf("dynamism %q: unknown, wanted %s", name, Dynamisms()))
	}
	kind := dynamic.Workloads()[k]
	run.Seed, run.Microbatches, run.Attention = c.Run.Seed, c.Parallel.Microbatches, c.AttentionShare()
	run.Every = cmp.Or(run.Every, kind.Every, max(1, run.Steps/10))
	switch {
	case run.Steps < 1:
		return fail(fmt.Errorf("steps: %d, wanted at least 1", run.Steps))
	case run.Start < 0 || run.Every < 1:
		return fail(fmt.Errorf("changes from step %d on every %d steps, wanted at least 0 and 1", run.Start, run.Every))
	case run.Microbatches < 1 && kind.Routed:
		return fail(fmt.Errorf("microbatches: %d, wanted at least 1 for %s", run.Microbatches, name))
	}
	chain, err := dynamic.NewChain(dense.Layers, run)
	if err != nil {
		return fail(err)
	}
	most := mostChanges
	if adapts(c) {
		most = mostMade
	}
	workload := kind.Of(c)
	o.Sampling, o.Placing = sample(run.Steps, run.Start, run.Every, interval, most), kind.Placing
	var series cost.Series
	costs := dynamic.Costs{Layers: dense.Layers}
	for step := range run.Steps {
		next, change := costs, ""
		if since := step - run.Start; since >= 0 && since%run.Every == 0 && !o.Sampling.leavesOut(step, run.Every) {
			if next = workload.Costs(chain, step); !next.Equal(costs) {
				change = name
			}
		}
		if change != "" || step == 0 {
			table := dense
			table.Layers, table.Scale = next.Layers, next.Scale
			series = append(series, cost.Phase{Step: step, Table: table, Routed: next.Routed, Change: change})
		}
		costs = next
		series[len(series)-1].Steps++
	}
	return series, nil
}

// WithHead returns a series in which the seconds of the head, the last layers of the chain, are
// multiplied by times.
func WithHead(series cost.Series, layers int, times float64) cost.Series {
	out := slices.Clone(series)
	for i := range out {
		chain := slices.Clone(out[i].Layers)
		for l := len(chain) - layers; l < len(chain); l++ {
			chain[l] = chain[l].WithSeconds(chain[l].Stage().Scale(times))
		}
		out[i].Layers = chain
	}
	return out
}

// Dynamisms lists the kinds that Generate knows: "prune, freeze or exit".
func Dynamisms() string {
	var names []string
	for _, w := range dynamic.Workloads() {
		names = append(names, w.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
