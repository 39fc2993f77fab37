package main

import (
	"bytes"
	"io"

	"github.com/spf13/cobra"

	"dynmo/src/report"
)

// reportCommand returns the command that shows one run as a page.
func reportCommand() *cobra.Command {
	var page target
	c := &cobra.Command{
		Use:   "report RUN_DIR -o FILE.html",
		Short: "Show a run as one HTML page: gain, curves, where layers lived, timelines, idle time by cause",
		Long: `Show a run as one HTML page that needs no network and fits a telephone's screen.
It begins with what moving layers gained: the step time beside what the first cuts,
never moved, would have taken, and the best cuts, both simulated on the costs that
the run recorded. Then loss, throughput, bubble ratio, imbalance and what changes in
the model over steps (sparsity, frozen layers, tokens that leave or are taken), which
stage held which layer and which share of the tokens each had, a step before and one
after layers moved, where time went, what happened in sentences, provenance. Of a run
that was packed onto fewer ranks also these and the nodes over steps, throughput against
the dense model's, and what each packing and each release took.

A run that has not ended has a page too, which says so; a torn last line in one of
its files is left out, which the page says too.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := page.check(); err != nil {
				return err
			}
			r, err := report.ReadAll(args[0])
			if err != nil {
				return usageError{err}
			}
			r.Bar = barOf(c)
			var text bytes.Buffer
			if err := report.HTML(&text, r); err != nil {
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
