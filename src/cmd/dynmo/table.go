package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dynmo/src/lab/report"
	"dynmo/src/record"
)

// tableCommand returns the command that compares runs in a table.
func tableCommand() *cobra.Command {
	var phases, wide, asJSON, asCSV bool
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
				tellNotes(c.ErrOrStderr(), r.Notes...)
				runs = append(runs, r)
			}
			report.Distinguish(runs)
			out := c.OutOrStdout()
			table := report.Table
			if phases {
				table = report.Phases
			}
			switch {
			case phases && (asJSON || asCSV):
				return writeRows(out, report.PhaseRows, runs, asCSV)
			case asJSON || asCSV:
				return writeRows(out, report.Rows, runs, asCSV)
			}
			if err := table(out, runs, wide); err != nil {
				return err
			}
			if err := report.Unfinished(out, runs); err != nil || phases {
				return err
			}
			if err := cmp.Or(report.Changes(out, runs), report.Packings(out, runs)); err != nil {
				return err
			}
			return tellWorth(out, runs)
		},
	}
	c.Flags().BoolVar(&phases, "phases", false, "a line for each run and each phase between two changes of the model")
	c.Flags().BoolVar(&wide, "wide", false, "every column, beyond 100 characters")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line, times in seconds")
	c.Flags().BoolVar(&asCSV, "csv", false, "comma-separated values, times in seconds")
	c.MarkFlagsMutuallyExclusive("json", "csv")
	return c
}

// writeRows writes the figures of runs as CSV or in JSON.
func writeRows[T any](out io.Writer, of func([]report.Run) ([]T, error), runs []report.Run, asCSV bool) error {
	rows, err := of(runs)
	switch {
	case err != nil:
		return usageError{err}
	case asCSV:
		return record.CSV(out, rows)
	}
	return writeLines(out, rows)
}

// tellWorth writes the value of the cuts of runs, if their costs are known.
func tellWorth(out io.Writer, runs []report.Run) error {
	worths, err := report.Weigh(runs)
	if err != nil {
		return usageError{err}
	}
	if !worths.Known() {
		return nil
	}
	var text bytes.Buffer
	fmt.Fprintln(&text)
	_ = worths.Table(&text) // a buffer never fails
	for _, verdict := range worths.Verdicts() {
		fmt.Fprintf(&text, "\nVerdict: %s\n", verdict)
	}
	_, err = out.Write(text.Bytes())
	return err
}
