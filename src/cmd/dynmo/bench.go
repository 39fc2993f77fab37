package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/nodebench"
)

// benchFlags are the flags of every benchmark.
type benchFlags struct {
	json    bool
	clock   string
	threads int
	rounds  int
}

// benchCommand returns the command that measures the speed of this node.
func benchCommand() *cobra.Command {
	var flags benchFlags
	c := group("bench", "Measure what this node can do", `Measure what this node can do. Every result is checked before its figure is
believed: wrong elements make it INVALID. The command fails if a figure is
INVALID or does not reach what it should.`,
		benchGemm(&flags), benchSpMM(&flags), benchStep(&flags), benchNet(&flags), benchGPU(&flags), benchSchedule(&flags), benchDecisions(&flags))
	c.PersistentFlags().BoolVar(&flags.json, "json", false, "one JSON object per line")
	c.PersistentFlags().StringVar(&flags.clock, "clock", "wall", "wall, or virtual: CPU time, for a machine that is busy")
	c.PersistentFlags().IntVar(&flags.threads, "threads", 1, "threads that share the arithmetic, at least 1")
	c.PersistentFlags().IntVar(&flags.rounds, "rounds", 7, "rounds that a median is taken over, at least 1")
	return c
}

func benchGemm(flags *benchFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "gemm",
		Short: "The rate of dense products, at the shapes of GPT-2 124M",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.Gemm(k, dev, nodebench.GPT2, flags.rounds)
			})
		},
	}
}

func benchSpMM(flags *benchFlags) *cobra.Command {
	var percents []int
	shape := nodebench.Shape{N: 256, C: 4096, O: 4096}
	c := &cobra.Command{
		Use:   "spmm",
		Short: "Sparse products against dense ones: from which sparsity on they win",
		Long: `Sparse products against dense ones, by percentage of zeros: the seconds of the
dense product over those of the sparse one. Where the ratio passes 1 is the
right value of prune.csr_from.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, percent := range percents {
				if percent < 0 || percent > 99 {
					return usageError{fmt.Errorf("--percent %d: want 0 to 99", percent)}
				}
			}
			for name, dimension := range map[string]int{"tokens": shape.N, "inputs": shape.C, "outputs": shape.O} {
				if dimension < 1 {
					return usageError{fmt.Errorf("--%s %d: want at least 1", name, dimension)}
				}
			}
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.SpMM(k, dev, shape, percents, flags.rounds)
			})
		},
	}
	c.Flags().IntSliceVar(&percents, "percent", nodebench.Sparsities, "percentages of zeros")
	c.Flags().IntVar(&shape.N, "tokens", shape.N, "tokens")
	c.Flags().IntVar(&shape.C, "inputs", shape.C, "input channels")
	c.Flags().IntVar(&shape.O, "outputs", shape.O, "output channels")
	return c
}

func benchStep(flags *benchFlags) *cobra.Command {
	sequences, length := 4, 64
	c := &cobra.Command{
		Use:   "step",
		Short: "A training step of GPT-2 124M against the rate of a dense product",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if longest := nodebench.GPT2Small.Sequence; length < 1 || length > longest {
				return usageError{fmt.Errorf("--length %d: want 1 to %d", length, longest)}
			}
			if sequences < 1 {
				return usageError{fmt.Errorf("--sequences %d: want at least 1", sequences)}
			}
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.Step(k, dev, nodebench.GPT2Small, sequences, length, flags.threads, flags.rounds)
			})
		},
	}
	c.Flags().IntVar(&sequences, "sequences", sequences, "sequences in the batch")
	c.Flags().IntVar(&length, "length", length, "tokens in a sequence")
	return c
}

// run measures on the host with the C kernels and prints the figures.
func (f *benchFlags) run(c *cobra.Command, measure func(kernel.Backend, device.Device) ([]nodebench.Result, error)) error {
	clock, err := f.newClock()
	if err != nil {
		return err
	}
	k, err := cpu.New(f.threads)
	if err != nil {
		return err
	}
	defer k.Close()
	results, err := measure(k, devcpu.New(clock))
	if err != nil {
		return err
	}
	return f.report(c, results)
}

// report prints figures and returns an error if any is invalid or too low.
func (f *benchFlags) report(c *cobra.Command, results []nodebench.Result) error {
	write := nodebench.WriteTable
	if f.json {
		write = writeLines[nodebench.Result]
	}
	if err := write(c.OutOrStdout(), results); err != nil {
		return err
	}
	return verdict(results)
}

// verdict returns an error if any figure is invalid or too low.
func verdict(results []nodebench.Result) error {
	failed := 0
	for _, r := range results {
		if !r.OK {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d figures are invalid or too low", failed, len(results))
	}
	return nil
}

// newClock checks the flags and returns the clock they ask for. A virtual one
// ties the goroutine to its thread until the program ends.
func (f *benchFlags) newClock() (*device.Clock, error) {
	switch {
	case f.threads < 1:
		return nil, usageError{fmt.Errorf("--threads %d: want at least 1", f.threads)}
	case f.rounds < 1:
		return nil, usageError{fmt.Errorf("--rounds %d: want at least 1", f.rounds)}
	case f.clock == "wall":
		return device.NewWall(), nil
	case f.clock != "virtual":
		return nil, usageError{fmt.Errorf("--clock %s: want wall or virtual", f.clock)}
	case f.threads > 1:
		return nil, usageError{errors.New("--clock virtual counts one thread: want --threads 1")}
	}
	runtime.LockOSThread()
	return device.NewVirtual(), nil
}
