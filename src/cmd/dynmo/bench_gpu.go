package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/device"
	devcuda "dynmo/src/device/cuda"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cuda"
	"dynmo/src/nodebench"
	"dynmo/src/tensor"
)

// fewestRounds is the least number of rounds for a median of GPU times, because the calls are
// short.
const fewestRounds = 10

// benchGPU returns the command that measures a GPU.
func benchGPU(flags *benchFlags) *cobra.Command {
	var only []string
	var quick bool
	c := &cobra.Command{
		Use:   "gpu",
		Short: "A GPU's kernels against its bandwidth and its matrix rate, and a training step",
		Long: `The first GPU's kernels, each against its bound, and a training step.

Calls that mostly move memory: the bytes that they must move over their time, and that over
the bandwidth of a copy within the GPU. Attention: the operations on and under the diagonal
over their time, and that over the rate of a product of two bf16 matrices of 8192 x 8192.
Sparse attention on four buckets, a quarter of the pairs: the time of dense attention, forward
and backward together, over that of the sparse one.
Sparse products: milliseconds, and the times of the dense product, of the same in TF32 and of
cuSPARSE, each over ours. cuSPARSE runs in its fastest form, which the unit names, and its
preparation for a pattern counts apart. The step: tokens per second of 24 blocks of 1024
channels, 2048 tokens in a sequence, in bf16. Its operations of matrices and attention are
compared with the matrix rate. Figures are medians of at least ten rounds. Results are compared
with the host's in float64 at sampled places.

--quick measures small shapes, whose times mean nothing: it checks only results. On the
stand-in for a GPU that tests run on, figures are called emulated.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkNames("only", only, nodebench.GPUParts()); err != nil {
				return err
			}
			if c.Flags().Changed("threads") {
				return usageError{errors.New("--threads: has no effect: a GPU has its own")}
			}
			clock, err := flags.newClock()
			if err != nil {
				return err
			}
			if clock.Kind() != "wall" {
				return usageError{errors.New("--clock virtual counts the time of CPU threads: want --clock wall")}
			}
			if err := useGPU("cuda"); err != nil {
				return err
			}
			return flags.onGPU(c, clock, only, quick)
		},
	}
	parts := strings.Join(nodebench.GPUParts(), ", ")
	c.Flags().StringSliceVar(&only, "only", nil, "parts to measure; copy and gemm always are: "+parts)
	c.Flags().BoolVar(&quick, "quick", false, "small shapes: whether all is right")
	return c
}

// onGPU measures the parts of the first GPU that only names, and prints the figures.
func (f *benchFlags) onGPU(c *cobra.Command, clock *device.Clock, only []string, quick bool) error {
	dev, err := devcuda.New(clock, 0)
	if err != nil {
		return err
	}
	defer dev.Close()
	g := nodebench.GPU{
		Device: dev, Rounds: max(f.rounds, fewestRounds), Bar: barOf(c), Quick: quick,
		Emulated: strings.Contains(dev.Describe().Name, "emulated"),
		Say:      func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) },
	}
	for d, k := range map[tensor.DType]*kernel.Backend{tensor.F32: &g.F32, tensor.BF16: &g.BF16} {
		if *k, err = cuda.New(d); err != nil {
			return err
		}
		defer (*k).Close()
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s; %s\n", dev.Describe(), g.BF16.Identity())
	f.machine.Device, f.machine.Threads = dev.Describe().Name, 1
	defer fallbacks(c, g.F32, g.BF16)
	if !f.json {
		results, failed := g.Measure(only)
		return errors.Join(failed, f.report(c, results))
	}
	var unwritten error
	g.Done = func(part []nodebench.Result) { // printed at once, because all parts together take minutes
		unwritten = errors.Join(unwritten, f.write(c, part))
	}
	results, failed := g.Measure(only)
	f.warn(c, results)
	return errors.Join(failed, unwritten, unreached(results))
}

// fallbacks prints how many dense products had no algorithm in the library.
func fallbacks(c *cobra.Command, kernels ...kernel.Backend) {
	for _, k := range kernels {
		if t, ok := k.(kernel.Tuner); ok {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %d dense products without an algorithm of cuBLASLt, 0 wanted\n", k.DType(), t.Fallbacks())
		}
	}
}
