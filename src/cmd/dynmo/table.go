package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"dynmo/src/report"
)

// tableCommand returns the command that sets runs side by side.
func tableCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "table RUN_DIR...",
		Short: "Set runs side by side: loss, step time, bubble ratio, bytes moved",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			var runs []report.Summary
			for _, dir := range dirs {
				r, err := report.Read(dir)
				if err != nil {
					return usageError{err}
				}
				runs = append(runs, r.Summarise())
			}
			if err := report.Table(c.OutOrStdout(), runs); err != nil {
				return err
			}
			fmt.Fprint(c.OutOrStdout(), "\n", report.Legend)
			return nil
		},
	}
}
