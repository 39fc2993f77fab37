package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dynmo/src/report"
)

// tableCommand returns the command that sets runs side by side.
func tableCommand() *cobra.Command {
	var phases bool
	c := &cobra.Command{
		Use:   "table RUN_DIR...",
		Short: "Set runs side by side: loss, step time, bubble ratio, bytes moved",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			var runs []report.Run
			for _, dir := range dirs {
				r, err := report.Read(dir)
				if err != nil {
					return usageError{err}
				}
				runs = append(runs, r)
			}
			table, legend := report.Table, report.Legend
			if phases {
				table, legend = report.Phases, report.PhasesLegend
			}
			if err := table(c.OutOrStdout(), runs); err != nil {
				return err
			}
			fmt.Fprint(c.OutOrStdout(), "\n", legend)
			if phases {
				return nil
			}
			return tellWorth(c.OutOrStdout(), runs)
		},
	}
	c.Flags().BoolVar(&phases, "phases", false, "a line for each run and each phase between two prunings")
	return c
}

// tellWorth writes what the cuts of runs were worth, where their costs tell.
func tellWorth(out io.Writer, runs []report.Run) error {
	var text bytes.Buffer
	if err := report.WorthTable(&text, runs); err != nil {
		return usageError{err}
	}
	if text.Len() > 0 {
		fmt.Fprintf(out, "\n%s\n%s", &text, report.WorthLegend)
	}
	return nil
}
