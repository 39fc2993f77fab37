package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"dynmo/src/nodebench"
)

// benchSchedule returns the command that simulates schedules. It measures
// nothing of the node: the figures are the same everywhere.
func benchSchedule(flags *benchFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "schedule",
		Short: "Pipeline schedules on equal and unequal stages, simulated",
		Long: `Pipeline schedules, simulated without messages.

The first table has stages that cost the same, f = i = w = 1 for a microbatch:
the most that a stage is idle between its first forward and its last backward,
which the formulas of GPipe, 1F1B, interleaved 1F1B and the zero-bubble schedules
give exactly, and the makespan over all stages, which is what counts where a
gradient norm over all stages ends the step.

The second has stages that differ: makespan over a lower bound that no schedule
can beat, mean over 20 draws. In the families, f = i = w = 1 on every stage
(equal), times a random factor within 15 or 40 % (within_15, within_40); f, i and
w apart are uniform in 0.5 to 1.5 (ragged); the first third of the stages has
forwards only, all are within 15 % (frozen_third). "in flight" is the most
microbatches that a stage may have between their forward and their backward for
weights; a schedule that needs more has no value. auto takes the fastest for each
draw; it should stay within 1.15 of the bound and never be slower than 1F1B. As
JSON, a figure is the bound over the makespan.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, flag := range []string{"clock", "threads", "rounds"} {
				if c.Flags().Changed(flag) {
					return usageError{fmt.Errorf("--%s: has no effect: bench schedule simulates", flag)}
				}
			}
			bubbles, err := nodebench.Bubbles()
			if err != nil {
				return err
			}
			unequal := nodebench.UnequalStages()
			results := nodebench.ScheduleResults(bubbles, unequal)
			if flags.json {
				return flags.report(c, results)
			}
			out := c.OutOrStdout()
			if err := nodebench.WriteBubbles(out, bubbles); err != nil {
				return err
			}
			fmt.Fprintln(out)
			if err := nodebench.WriteUnequal(out, unequal); err != nil {
				return err
			}
			return verdict(results)
		},
	}
}
