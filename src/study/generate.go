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
// same share a phase. What is assumed stands with each kind (dynamic.Workloads).
// The clock of the tables is sim.
func Generate(name string, dense cost.Table, run dynamic.MadeUp) (cost.Series, error) {
	k := slices.IndexFunc(dynamic.Workloads, func(w dynamic.NamedWorkload) bool { return w.Name == name })
	if k < 0 {
		return nil, fmt.Errorf("dynamism %q: unknown, wanted %s", name, Dynamisms())
	}
	kind := dynamic.Workloads[k]
	run.Every = cmp.Or(run.Every, kind.Every, max(1, run.Steps/10))
	switch {
	case run.Steps < 1:
		return nil, fmt.Errorf("steps: %d, wanted at least 1", run.Steps)
	case run.Start < 0 || run.Every < 1:
		return nil, fmt.Errorf("changes from step %d on every %d steps, wanted at least 0 and 1", run.Start, run.Every)
	case run.Microbatches < 1 && kind.Routed:
		return nil, fmt.Errorf("microbatches: %d, wanted at least 1 for %s", run.Microbatches, name)
	}
	chain, err := dynamic.NewChain(dense.Layers, run)
	if err != nil {
		return nil, err
	}
	var series cost.Series
	costs := dynamic.Costs{Layers: dense.Layers}
	for step := range run.Steps {
		next, change := costs, ""
		if since := step - run.Start; since >= 0 && since%run.Every == 0 {
			next = kind.Costs(chain, step)
		}
		if !next.Equal(costs) {
			change = name
		}
		if change != "" || step == 0 {
			table := dense
			table.Clock, table.Layers = "sim", next.Layers
			series = append(series, cost.Phase{Step: step, Table: table, Scale: next.Scale, Change: change})
		}
		costs = next
		series[len(series)-1].Steps++
	}
	return series, nil
}

// Dynamisms lists the kinds that Generate knows: "prune, freeze or moe".
func Dynamisms() string {
	var names []string
	for _, w := range dynamic.Workloads {
		names = append(names, w.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
