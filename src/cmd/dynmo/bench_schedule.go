package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/lab/study"
	"dynmo/src/nodebench"
	"dynmo/src/schedule"
)

// benchSchedule returns the command that simulates schedules. It measures
// nothing of the node: the figures are the same everywhere.
func benchSchedule(flags *benchFlags) *cobra.Command {
	var seed uint64
	c := &cobra.Command{
		Use:   "schedule",
		Short: "Pipeline schedules on equal and unequal stages, simulated",
		Long: `Pipeline schedules, simulated without messages.

The first table has stages that cost the same, f = i = w = 1 for a microbatch. It compares the
longest idle time of a stage, between its first forward and its last backward, with the exact
formulas of GPipe, 1F1B, interleaved 1F1B and the zero-bubble schedules. It also has the
makespan over all stages, which counts where a gradient norm over all stages ends the step.

The second table has stages that differ: makespan over a lower bound that no schedule can beat,
the mean of 20 draws. Each draw has once to four times as many microbatches as stages. The
families are: equal, f = i = w = 1 on every stage; short_weight, the same with w = 0.5;
within_15 and within_40, times a random factor within 15 or 40 %; ragged, with f, i and w
uniform in 0.5 to 1.5; frozen_third, where the first third of the chain has forwards only and
all are within 15 %. Two chunks of a stage lie in a V. "in flight" is the most microbatches of
its chunks that a stage may have between their forward and their backward for weights; a
schedule that needs more has no value. greedy-v is the scheduler of ZB-V's authors. auto takes
the fastest for each draw. It should stay within 1.15 of the bound in the mean. It should never
take more than 1.01 times the fastest of the others except list ("over best"). As JSON, a figure
is the bound over the makespan.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, flag := range []string{"clock", "threads", "rounds"} {
				if c.Flags().Changed(flag) {
					return usageError{fmt.Errorf("--%s: has no effect: bench schedule simulates", flag)}
				}
			}
			bubbles, err := study.Bubbles()
			if err != nil {
				return err
			}
			unequal := study.UnequalStages(seed, barOf(c).Show)
			var results []nodebench.Result
			for _, b := range bubbles {
				results = append(results, bubbleResults(b)...)
			}
			for _, u := range unequal {
				results = append(results, unequalResults(u)...)
			}
			if flags.json {
				return flags.report(c, results)
			}
			out := c.OutOrStdout()
			if err := writeBubbles(out, bubbles); err != nil {
				return err
			}
			fmt.Fprintln(out)
			if err := writeUnequal(out, unequal); err != nil {
				return err
			}
			return unreached(results)
		},
	}
	c.Flags().Uint64Var(&seed, "seed", 1, "of the draws")
	return c
}

// toBound is the share bound / makespan that auto should reach, as a mean over the draws. 1 / 1.15
// = 0.8696, rounded up.
const toBound = 0.87

// columns are the schedules whose makespans are compared.
var columns = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2,
	schedule.KindZBV, study.KindGreedy, schedule.KindList, schedule.KindAuto,
}

// bubbleResults returns the figures of a bubble. Idle time counts as wrong unless it equals the
// formula exactly.
func bubbleResults(b study.Bubble) []nodebench.Result {
	wrong := 0
	if b.Idle != b.Formula {
		wrong = 1
	}
	name := fmt.Sprintf("schedule/%s_p%d_m%d_", b.Kind, b.Stages, b.Microbatches)
	return []nodebench.Result{
		{Name: name + "idle", Value: b.Idle, Unit: "forwards", OK: wrong == 0, Clock: "sim", Wrong: wrong},
		{Name: name + "makespan", Value: b.Makespan, Unit: "forwards", OK: true, Clock: "sim"},
		{Name: name + "bubble", Value: b.Ratio, Unit: "ratio", OK: true, Clock: "sim"},
	}
}

// unequalResults returns the figures of a family of unequal costs: bound / makespan of every
// schedule, auto last. Draws in which auto is slower than another kind count as wrong.
func unequalResults(u study.Unequal) []nodebench.Result {
	var list []nodebench.Result
	for _, kind := range columns {
		mean, ok := u.Mean[kind]
		if !ok {
			continue
		}
		r := nodebench.Result{
			Name:  fmt.Sprintf("schedule/%s_p%d_v%d_cap_%s_%s", kind, u.Stages, u.Chunks, inFlight(u), u.Family),
			Value: 1 / mean, Unit: "ratio", OK: true, Clock: "sim",
		}
		if kind == schedule.KindAuto {
			r.Reach, r.Wrong = toBound, u.Behind
			r.OK = r.Value >= r.Reach && r.Wrong == 0
		}
		list = append(list, r)
	}
	return list
}

// inFlight formats the cap on microbatches in flight.
func inFlight(u study.Unequal) string {
	if u.InFlight == 0 {
		return "none"
	}
	return strconv.Itoa(u.InFlight)
}

// writeBubbles prints bubbles as a table.
func writeBubbles(out io.Writer, list []study.Bubble) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "schedule\tstages\tmicrobatches\tidle per stage\tformula\tmakespan\tbubble ratio\tverdict")
	for _, b := range list {
		verdict := "EXACT"
		if b.Idle != b.Formula {
			verdict = "INVALID"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%g\t%g\t%g\t%.4f\t%s\n",
			b.Kind, b.Stages, b.Microbatches, b.Idle, b.Formula, b.Makespan, b.Ratio, verdict)
	}
	return t.Flush()
}

// writeUnequal prints makespans over the lower bound as a table.
func writeUnequal(out io.Writer, list []study.Unequal) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "family\tstages\tchunks\tin flight\t")
	for _, kind := range columns {
		fmt.Fprintf(t, "%s\t", kind)
	}
	fmt.Fprintln(t, "worst auto\tover best\tverdict")
	for _, u := range list {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t", u.Family, u.Stages, u.Chunks, inFlight(u))
		for _, kind := range columns {
			if mean, ok := u.Mean[kind]; ok {
				fmt.Fprintf(t, "%.3f\t", mean)
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		all := unequalResults(u)
		fmt.Fprintf(t, "%.3f\t%.3f\t%s\n", u.Worst, u.Over, all[len(all)-1].Verdict())
	}
	return t.Flush()
}
