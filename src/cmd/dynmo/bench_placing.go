package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/dynamic"
	"dynmo/src/lab/study"
	"dynmo/src/nodebench"
	"dynmo/src/sim"
)

// benchPlacing returns the command that compares ways to distribute the pieces of layers over
// replicas.
func benchPlacing(flags *benchFlags) *cobra.Command {
	var seed uint64
	var only string
	c := &cobra.Command{
		Use:   "placing",
		Short: "Ways to place pieces of layers on replicas, simulated",
		Long:  "Ways to place pieces of layers and their copies on the replicas of a stage, simulated.\n" + placingHelp(),
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, flag := range []string{"clock", "threads", "rounds"} {
				if c.Flags().Changed(flag) {
					return usageError{fmt.Errorf("--%s: has no effect: bench placing simulates", flag)}
				}
			}
			var results []nodebench.Result
			contests := dynamic.Contests()
			for _, kind := range slices.Sorted(maps.Keys(contests)) {
				of := contests[kind]
				for _, x := range of.Cases {
					if !strings.Contains(x.Name, only) {
						continue
					}
					list, err := study.Contest(kind, of, x, seed, sim.Uniform(0, 0))
					if err != nil {
						return err
					}
					results = append(results, placingResults(x, list)...)
					if flags.json {
						continue
					}
					if err := writePlacing(c.OutOrStdout(), x, list); err != nil {
						return err
					}
				}
			}
			if results == nil {
				return usageError{errors.New("--only: no case has such a name")}
			}
			if flags.json {
				return flags.report(c, results)
			}
			return unreached(results)
		},
	}
	c.Flags().Uint64Var(&seed, "seed", 1, "of the rows")
	c.Flags().StringVar(&only, "only", "", "only cases whose names contain this")
	return c
}

// placingHelp returns the help text on the cases and rivals of all contests.
func placingHelp() (text string) {
	contests := dynamic.Contests()
	for _, kind := range slices.Sorted(maps.Keys(contests)) {
		text += "\n" + contests[kind].About + "\n"
		for _, r := range contests[kind].Rivals {
			text += fmt.Sprintf("\n  %s: %s", r.Name, r.About)
		}
	}
	return text
}

// placingResults returns a figure for each rival: perfectly even work divided by the rival's
// largest work.
func placingResults(x dynamic.ContestCase, list []study.Contestant) (results []nodebench.Result) {
	clean := strings.NewReplacer(", ", "_", " ", "_")
	for i, one := range list {
		r := nodebench.Result{Name: fmt.Sprintf("placing/%s_%d_%s", clean.Replace(x.Name), x.Replicas, clean.Replace(one.Name)), Value: 1 / one.Over, Unit: "ratio", OK: true, Clock: "sim"}
		if i == len(list)-1 && x.Most > 0 {
			r.Reach = 1 / x.Most
			r.OK = r.Value >= r.Reach
		}
		results = append(results, r)
	}
	return results
}

// writePlacing prints the rivals of a case.
func writePlacing(out io.Writer, x dynamic.ContestCase, list []study.Contestant) error {
	fmt.Fprintf(out, "%s, %d replicas", x.Name, x.Replicas)
	if x.Most > 0 {
		fmt.Fprintf(out, "; ours should take at most %.3f", x.Most)
	}
	fmt.Fprintln(out, " (clock=sim)")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  \tover even work\tslowest step\tdropped\tsteps with moves")
	for _, one := range list {
		dropped := "-"
		if one.Dropped > 0 {
			dropped = fmt.Sprintf("%.1f %%", 100*one.Dropped)
		}
		fmt.Fprintf(w, "  %s\t%.3f\t%.3f\t%s\t%d\n", one.Name, one.Over, one.Worst, dropped, one.Moves)
	}
	return w.Flush()
}
