package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// madeUp holds the flags of a run that is generated from one table.
type madeUp struct {
	kind   string
	sample int // one in sample changes of the model is simulated; 0: as many as needed
	dynamic.MadeUp
}

// kinds returns the kinds of dynamism to generate; "none" for none.
func (d *madeUp) kinds() []string {
	switch d.kind {
	case "":
		return []string{"none"}
	case allKinds:
		var all []string
		for _, w := range dynamic.Workloads() {
			all = append(all, w.Name)
		}
		return all
	}
	return []string{d.kind}
}

// flags adds the flags to a command.
func (d *madeUp) flags(c *cobra.Command) {
	c.Flags().StringVar(&d.kind, "dynamic", "", "let the first table's chain change like this: "+study.Dynamisms()+"; or all, for a table of them")
	c.Flags().IntVar(&d.Steps, "steps", 1000, "steps of a run that is made up")
	c.Flags().IntVar(&d.Start, "from", 0, "step of that run in which the model changes first")
	c.Flags().IntVar(&d.Every, "every", 0, "steps between its changes; 0 is what the paper does with that kind: "+paperEvery())
	c.Flags().IntVar(&d.sample, "sample", 0, "simulate one in N changes, which stands for the others; 1 simulates all; 0 at most 400 of a run, 100 where schedules are made for costs")
}

// paperEvery lists the steps between changes of each kind in the paper.
func paperEvery() string {
	text := ""
	for _, w := range dynamic.Workloads() {
		switch w.Every {
		case 0:
			text += fmt.Sprintf("of %s a tenth of the run, ", w.Name)
		case 1:
		default:
			text += fmt.Sprintf("of %s %d, ", w.Name, w.Every)
		}
	}
	return text + "of others 1"
}

// allKinds is the value of --dynamic for a table of all kinds.
const allKinds = "all"

// change returns the run that is generated from a series' first table. Without --dynamic it returns
// the series itself, if the series is of a run. It prints a note if the run is not dynamic.
func (d madeUp) change(c *cobra.Command, series record.Series, o *study.Options) (cost.Series, error) {
	if d.kind == "" {
		out, err := d.unchanged(c, series)
		return study.WithHead(out, o.Config.Model.HeadShards, o.Config.Simulate.Head), err
	}
	out, err := d.generate(d.kind, series, o)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(out, func(s cost.Phase) bool { return s.Change != "" }) {
		fmt.Fprintf(c.ErrOrStderr(), "note: --dynamic %s changes the model in none of %d steps; see --steps, --from and --every\n", d.kind, d.Steps)
	}
	return out, nil
}

// unchanged returns a series without changes. A single table that belongs to no run is repeated for
// --steps steps.
func (d madeUp) unchanged(c *cobra.Command, series record.Series) (cost.Series, error) {
	costs := series.Costs()
	flags := []string{"from", "every", "sample"}
	if len(costs) == 1 && costs[0].Steps == 0 {
		if d.Steps < 1 {
			return nil, fmt.Errorf("--steps %d: want at least 1", d.Steps)
		}
		costs[0].Steps = d.Steps
	} else {
		flags = append(flags, "steps")
	}
	for _, flag := range flags {
		if c.Flags().Changed(flag) {
			return nil, fmt.Errorf("--%s: has no effect, want --dynamic beside it", flag)
		}
	}
	return costs, nil
}

// generate generates a run of a kind from a series' first table. It sets in the options which steps
// are simulated.
func (d madeUp) generate(kind string, series record.Series, o *study.Options) (cost.Series, error) {
	if d.sample < 0 {
		return nil, fmt.Errorf("--sample %d: want at least 0", d.sample)
	}
	if made := o.Config.Dynamic; slices.Contains(strings.Split(made.Structure(), "+"), kind) && kind != "none" {
		return nil, fmt.Errorf("--dynamic %s: the costs are of a model with dynamic.kind = %q already, want those of one without", kind, made.Kind)
	}
	out, err := study.Generate(kind, series[0].Costs().Mean(), o, d.MadeUp, d.sample)
	if err != nil {
		return nil, fmt.Errorf("--dynamic: %w", err)
	}
	return study.WithHead(out, o.Config.Model.HeadShards, o.Config.Simulate.Head), nil
}
