package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"dynmo/src/nodebench"
	"dynmo/src/study/dynamism"
)

// dynamismResults returns the figures of a case: of every run, and what is to be reached.
func dynamismResults(f dynamism.Figures) []nodebench.Result {
	name := func(parts ...string) string {
		return "dynamism/" + strings.ReplaceAll(strings.Join(append([]string{f.Name()}, parts...), "_"), " ", "_")
	}
	var list []nodebench.Result
	add := func(value float64, unit string, reach float64, parts ...string) {
		list = append(list, nodebench.Result{Name: name(parts...), Value: value, Unit: unit, Reach: reach, OK: value >= reach, Clock: "virtual"})
	}
	for _, r := range f.Rows {
		add(r.Step, "seconds", 0, r.Name, "step")
		add(r.Imbalance, "ratio", 0, r.Name, "imbalance")
		add(r.Bubble, "ratio", 0, r.Name, "bubble")
	}
	best := f.Rows[f.Best]
	add(best.Total, "ratio", 0, "total_speedup")
	add(best.Speedup, "ratio", 0, "balancing_speedup")
	add(f.Ceiling, "ratio", 0, "ceiling")
	add(f.Possible, "ratio", 0, "best_cuts")
	add(f.Paper, "ratio", 0, "paper")
	add(f.Reached(), "ratio", dynamism.ReachCeiling, "of_ceiling")
	add(1-f.Overhead(), "share", 1-f.Most(), "not_balancing")
	return list
}

// writeCase writes the runs of a case for people.
func writeCase(out io.Writer, f dynamism.Figures) error {
	fmt.Fprintf(out, "\n%s: %s (clock=virtual)\n", f.Kind, f.Strength)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cuts\tstep, ms\timbalance\tbubble ratio\toverhead, %\tmoves\ttotal\tbalancing")
	for i, r := range f.Rows {
		balancing := fmt.Sprintf("%.2fx", r.Speedup)
		if i == 0 {
			balancing = "-"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.3f\t%.2f\t%d\t%.2fx\t%s\n",
			r.Name, 1e3*r.Step, r.Imbalance, r.Bubble, 100*r.Overhead, r.Moves, r.Total, balancing)
	}
	return t.Flush()
}

// writeCases writes what cases reach for people, nothing if there are none.
func writeCases(out io.Writer, list []dynamism.Figures) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nThe faster balancer beside the better static cuts (clock=virtual)\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tmoves\ttotal\tbalancing\tbest cuts\tceiling\tof it\tverdict\toverhead, %\tverdict\tpaper\tover")
	for _, f := range list {
		best := f.Rows[f.Best]
		fmt.Fprintf(t, "%s\t%d\t%.2fx\t%.2fx\t%.2fx\t%.2fx\t%.2f (%g)\t%s\t%.2f (%g)\t%s\t%gx\t%s\n",
			f.Name(), best.Moves, best.Total, best.Speedup, f.Possible, f.Ceiling, f.Reached(), dynamism.ReachCeiling, passed(f.Reached() >= dynamism.ReachCeiling),
			100*f.Overhead(), 100*f.Most(), passed(f.Overhead() <= f.Most()), f.Paper, f.Over)
	}
	return t.Flush()
}

// passed names a verdict.
func passed(ok bool) string {
	if ok {
		return "PASS"
	}
	return "FAIL"
}
