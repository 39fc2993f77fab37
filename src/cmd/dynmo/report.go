package main

import (
	"bytes"
	"io"

	"github.com/spf13/cobra"

	"dynmo/src/lab/report"
)

// reportCommand returns the command that shows one run as a page.
func reportCommand() *cobra.Command {
	var page target
	c := &cobra.Command{
		Use:   "report RUN_DIR... -o FILE.html",
		Short: "Show runs as one HTML page: gain, curves, where layers lived, timelines, idle time by cause",
		Long: `Show a run as one HTML page that needs no network and fits a telephone's screen. It begins
with the gain of moving layers: the step time, beside the simulated step times of the first cuts
and of the best cuts on the costs that the run recorded. Charts over steps follow: loss,
throughput, bubble ratio, imbalance, and the changes of the model (sparsity, frozen layers,
tokens that leave or are taken). A map shows which stage held which layer, and its share of the
tokens. Then come a step before and after layers moved, the idle time by cause, the events in
sentences, and the provenance. For a run that was packed onto fewer ranks the page has charts of
ranks and nodes, the throughput against the dense model's, and the time of each packing and
release.

Several runs, at most 8, are compared in one page: a table of results, the gain of moving layers
in each, their curves in shared charts, and the settings in which they differ. Runs of the same
work are judged on one set of layer costs, as in dynmo table.

A run that has not ended has a page too, which says so. If the last line of a file is torn the
page leaves it out and says so.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := page.check(); err != nil {
				return err
			}
			var runs []report.Run
			for _, dir := range args {
				r, err := report.ReadAll(dir)
				if err != nil {
					return usageError{err}
				}
				runs = append(runs, r)
			}
			var text bytes.Buffer
			var err error
			if len(runs) == 1 {
				err = report.HTML(&text, runs[0])
			} else {
				err = report.Compare(&text, runs)
			}
			if err != nil {
				return usageError{err}
			}
			return page.write(c, func(out io.Writer) error {
				_, err := text.WriteTo(out)
				return err
			})
		},
	}
	page.required(c, "file to write; - is standard output")
	return c
}
