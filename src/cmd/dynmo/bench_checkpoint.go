package main

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/nodebench"
)

// benchCheckpoint returns the command that measures checkpoints.
func benchCheckpoint(flags *benchFlags) *cobra.Command {
	dir, ranks, blocks := ".", 2, nodebench.GPT2Small.Blocks
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "A checkpoint of GPT-2 124M: how long training waits, writing, reading",
		Long: `A checkpoint of GPT-2 124M with AdamW's moments, 1.5 GB, by several ranks. Three results:
the time for which training waits, against one copy of the same bytes; the rate of writing,
against the slower of one file on disk and SHA-256 on all ranks; and the time of reading the
layers, against reading their files. The written bytes are read back and compared. The
benchmark needs twice the bytes on disk and four times the bytes in memory.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cmp.Or(checkRange("ranks", ranks, 1, 64), checkRange("blocks", blocks, 1, 1000)); err != nil {
				return err
			}
			if flags.clock != "wall" {
				return usageError{errors.New("--clock virtual: the disk takes no CPU time; want wall")}
			}
			flags.threads = ranks
			shape := nodebench.GPT2Small
			shape.Blocks = blocks
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.Save(k, dev, shape, dir, ranks, flags.shown(c))
			})
		},
	}
	c.Flags().StringVar(&dir, "dir", dir, "`DIR` on the file system to measure")
	c.Flags().IntVar(&ranks, "ranks", ranks, "ranks that write and read at once")
	c.Flags().IntVar(&blocks, "blocks", blocks, "transformer blocks")
	return c
}
