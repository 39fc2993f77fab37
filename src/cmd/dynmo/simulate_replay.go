package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"dynmo/src/record"
	"dynmo/src/trace"
)

// printReplayed writes how well the simulator knows what really ran.
func (a simAnswer) printReplayed(out io.Writer) error {
	var rows [][]string
	var errors, aheads []float64
	for _, r := range a.Replayed {
		row := []string{fromTo(r.Step, max(1, r.Steps)), duration(r.Measured), duration(r.Predicted), percent(r.Error), "", ""}
		errors = append(errors, math.Abs(r.Error))
		if r.Ahead > 0 {
			wrong := r.Ahead/r.Measured - 1
			row[4], row[5] = duration(r.Ahead), percent(wrong)
			aheads = append(aheads, math.Abs(wrong))
		}
		rows = append(rows, row)
	}
	fmt.Fprintf(out, "\nmakespan of what really ran (clock=%s), and as simulated (clock=sim)\n", a.Costs)
	header := []string{"steps", "measured", "predicted", "error", "before the move", "error"}
	if err := record.Table(out, header, rows[:min(shown, len(rows))]); err != nil {
		return err
	}
	if more := len(rows) - shown; more > 0 {
		fmt.Fprintf(out, "and %d lines more (--json)\n", more)
	}
	fmt.Fprintf(out, "error: median %.2f %%, largest %.2f %%\n", 100*trace.Median(errors), 100*slices.Max(errors))
	if len(aheads) > 0 {
		fmt.Fprintf(out, "error before the move: median %.2f %%, largest %.2f %%\n", 100*trace.Median(aheads), 100*slices.Max(aheads))
	}
	return nil
}

// percent writes a share with its sign.
func percent(share float64) string { return fmt.Sprintf("%+.2f %%", 100*share) }
