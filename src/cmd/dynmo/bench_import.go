package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	devcpu "dynmo/src/device/cpu"
	"dynmo/src/nodebench"
)

// benchImport returns the command that measures importing.
func benchImport(flags *benchFlags) *cobra.Command {
	dir, blocks := ".", nodebench.LlamaGB.Blocks
	c := &cobra.Command{
		Use:   "import",
		Short: "Importing and exporting 1 GB of a LLaMA's weights against copying them",
		Long: `Importing a Hugging Face directory of a made-up LLaMA, 1.1 GB of bfloat16 in one file,
and exporting it again, beside copying that file by as large pieces, in turn; all of it
on disk each time. What comes back is compared byte for byte. Needs four times the
bytes on disk.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if blocks < 1 || blocks > 1000 {
				return usageError{fmt.Errorf("--blocks %d: want 1 to 1000", blocks)}
			}
			if flags.clock != "wall" {
				return usageError{errors.New("--clock virtual: the disk takes no CPU time; want wall")}
			}
			clock, err := flags.newClock()
			if err != nil {
				return err
			}
			shape := nodebench.LlamaGB
			shape.Blocks = blocks
			results, err := nodebench.Import(devcpu.New(clock), shape, dir, flags.rounds)
			if err != nil {
				return err
			}
			return flags.report(c, results)
		},
	}
	c.Flags().StringVar(&dir, "dir", dir, "`DIR` on the file system to measure")
	c.Flags().IntVar(&blocks, "blocks", blocks, "transformer blocks")
	return c
}
