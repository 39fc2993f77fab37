package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"dynmo/src/comm/mpi"
	"dynmo/src/record"
)

// barKey is the key of a command's bar in its context.
type barKey struct{}

// barOf returns the progress bar of a running command; nil on all ranks but the first.
func barOf(c *cobra.Command) *record.Bar {
	bar, _ := c.Context().Value(barKey{}).(*record.Bar)
	return bar
}

// watched makes the commands below c show their progress: a bar on a terminal, which output removes, else a
// line every minute. Of several ranks the first one does. Train shows its own progress.
func watched(c *cobra.Command) {
	if run := c.RunE; run != nil && c.CommandPath() != "dynmo train" {
		c.RunE = func(c *cobra.Command, args []string) error {
			if mpi.Launched() && mpi.LaunchRank() != 0 {
				return run(c, args)
			}
			bar := record.NewBar(os.Stderr, c.CommandPath())
			defer bar.Close()
			c.SetContext(context.WithValue(c.Context(), barKey{}, bar))
			c.SetOut(ahead{c.OutOrStdout(), bar.Close})
			c.SetErr(ahead{c.ErrOrStderr(), bar.Clear})
			return run(c, args)
		}
	}
	for _, child := range c.Commands() {
		watched(child)
	}
}

// shownBytes is a writer that shows on a bar how many bytes of a total it has written.
type shownBytes struct {
	bar         *record.Bar
	done, total int64
}

func (w *shownBytes) Write(p []byte) (int, error) {
	w.done += int64(len(p))
	w.bar.Show(w.done, w.total)
	return len(p), nil
}

// ahead is a writer that calls a function before each write.
type ahead struct {
	io.Writer
	first func()
}

func (w ahead) Write(p []byte) (int, error) {
	w.first()
	return w.Writer.Write(p)
}
