package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/model"
	"dynmo/src/nodebench"
)

// benchFlags are the flags of every benchmark.
type benchFlags struct {
	json    bool
	clock   string
	threads int
	rounds  int
	texts   bool // kernels for texts that grow by a token

	watch   *nodebench.Watch
	machine nodebench.Machine
	advice  string // how to make products faster
}

// benchCommand returns the command that measures the speed of this node.
func benchCommand() *cobra.Command {
	var flags benchFlags
	c := group("bench", "Measure what this node can do", `Measure what this node can do. Every result is checked before its figure is
believed: wrong elements make it INVALID. The command fails if a figure is
INVALID or does not reach its reach.

A figure is the median of its rounds and stands before their quartiles. What a ratio
compares is done in turn, again and again: the ratio is the median of those of
neighbours, so that whatever else the machine does cancels. A warning says when other
processes took cores that the measurement wanted, or when neighbours disagree.

Every line names the CPU, the instruction set of dynmo's kernels, and the BLAS with the
type of core that its kernels are for; "-" stands where there is nothing to reach.`,
		benchGemm(&flags), benchSpMM(&flags), benchStep(&flags), benchSample(&flags), benchCheckpoint(&flags), benchNet(&flags), benchNode(&flags), benchPairs(&flags), benchGPU(&flags), benchSchedule(&flags), benchPlacing(&flags), benchScale(&flags))
	c.PersistentPreRun = func(*cobra.Command, []string) {
		flags.watch = nodebench.NewWatch()
		flags.machine = flags.watch.Machine(revision())
	}
	c.PersistentFlags().BoolVar(&flags.json, "json", false, "one JSON object per line")
	c.PersistentFlags().StringVar(&flags.clock, "clock", "wall", "wall, or virtual: CPU time, for a machine that is busy")
	c.PersistentFlags().IntVar(&flags.threads, "threads", 1, "threads that share the arithmetic, 1 to 1024")
	c.PersistentFlags().IntVar(&flags.rounds, "rounds", 15, "rounds that a median is taken over, 1 to 1000000")
	return c
}

const (
	mostThreads = 1024
	mostRows    = 1 << 16 // rows and columns of a matrix that is measured
)

func benchGemm(flags *benchFlags) *cobra.Command {
	var rows []int
	c := &cobra.Command{
		Use:   "gemm",
		Short: "The rate of dense products, at the shapes of GPT-2 124M",
		Long: `The rate of dense products, at the shapes of GPT-2 124M. With --rows: products of so many
rows with weights, by the BLAS and by oneDNN in turn. The figures are how many times as fast
oneDNN is. From them comes the table of shapes that oneDNN makes in float32 where it is
installed; it has lines for Zen 5.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.checked(); err != nil {
				return err
			}
			for _, n := range rows {
				if err := checkRange("rows", n, 1, mostRows); err != nil {
					return err
				}
			}
			if len(rows) > 0 {
				blas, onednn, err := cpu.NewBoth(flags.threads)
				if err != nil {
					return fmt.Errorf("--rows: %w", err)
				}
				defer onednn.Close()
				defer blas.Close()
				return flags.run(c, func(_ kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
					return nodebench.Few(blas, onednn, dev, rows, flags.shown(c))
				})
			}
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.Gemm(k, dev, nodebench.GPT2, flags.shown(c))
			})
		},
	}
	c.Flags().IntSliceVar(&rows, "rows", nil, "rows of products that the BLAS and oneDNN make in turn")
	return c
}

func benchSpMM(flags *benchFlags) *cobra.Command {
	var percents []int
	structure := "unstructured"
	shape := nodebench.Shape{N: 256, C: 4096, O: 4096}
	c := &cobra.Command{
		Use:   "spmm",
		Short: "Sparse products against dense ones: from which sparsity on they win",
		Long: `Sparse products against dense ones, by percentage of zeros: the seconds of the dense
product over those of the sparse one. The last line is the percentage from which on the three
products of a training step take no longer than dense ones. It is the right value of
prune.csr_from, and prune.crossing takes it from the file of --json.

The ratio depends on the CPU. A sparse product loads a vector for every vector that it
multiplies, so the caches set its speed. On one thread of an AMD Zen 4 it does each kept
weight at about half the dense rate: at 90 % of zeros it is 4.6 to 5.2 times as fast as the
dense product. Against the BLAS's kernels for Nehalem (OPENBLAS_CORETYPE=NEHALEM: a third of
the dense rate) the same sparse product is 11 to 13 times as fast. Intel's server cores have
twice the multipliers of Zen 4, and caches that are not twice as fast: 2.2 to 2.9 times on a
Cascade Lake.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			side, ok := map[string]int{"unstructured": 1, "block32": 32}[structure]
			if !ok {
				return usageError{fmt.Errorf("--structure %s: want unstructured or block32", structure)}
			}
			for _, percent := range percents {
				if percent < 0 || percent > 99 {
					return usageError{fmt.Errorf("--percent %d: want 0 to 99", percent)}
				}
			}
			if err := cmp.Or(checkRange("tokens", shape.N, 1, mostRows), checkRange("inputs", shape.C, 1, mostRows), checkRange("outputs", shape.O, 1, mostRows)); err != nil {
				return err
			}
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.SpMM(k, dev, shape, percents, side, flags.shown(c))
			})
		},
	}
	c.Flags().StringVar(&structure, "structure", structure, "where the zeros are, as prune.structure: unstructured, or block32")
	c.Flags().IntSliceVar(&percents, "percent", nodebench.Sparsities, "percentages of zeros")
	c.Flags().IntVar(&shape.N, "tokens", shape.N, "tokens")
	c.Flags().IntVar(&shape.C, "inputs", shape.C, "input channels")
	c.Flags().IntVar(&shape.O, "outputs", shape.O, "output channels")
	return c
}

func benchStep(flags *benchFlags) *cobra.Command {
	sequences, length, precision, name := 4, 64, "f32", gpt2
	c := &cobra.Command{
		Use:   "step",
		Short: "A training step of GPT-2 124M against the rate of a dense product",
		Long: `A training step of GPT-2 124M on one rank (forward, backward, norm, update) against one
dense product of the BLAS (1536 x 1536 x 1536), in turn. The result is the rate of the step,
at 6 operations for each parameter and token, over the rate of the product.

The ratio depends on the CPU. A part of the step does not get faster with the product's
innermost loops: the BLAS copies operands, and the update moves 28 bytes for each parameter.
On one thread of an AMD Zen 4, where the product reaches 90 to 100 GFLOP/s, the ratio is 0.85
to 0.88. With the BLAS's kernels for Nehalem (OPENBLAS_CORETYPE=NEHALEM: 29 GFLOP/s) it is
0.95. Zen 5 and Intel's server cores have twice the multipliers of Zen 4, so the other part
weighs more: a Zen 5 had 0.80, with oneDNN 0.85; Intel's had 0.74 to 0.79, less where memory is
slower, and a Cascade Lake 0.68 to 0.74. More tokens raise the ratio, because the other part
hardly grows with them: try --sequences 16.

With --precision bf16 the step with device.cpu_precision = "bf16" is measured in turn with the
step in float32. step/bf16_over_f32 is how many times as fast it is. --model llama and mixtral
are those of dynmo bench sample; their figures have no ratio to the product.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"f32", "bf16", "bf16-emulated"}, precision) {
				return usageError{fmt.Errorf("--precision %q, want f32, bf16 or bf16-emulated", precision)}
			}
			shape, row, err := benchModel("step", name)
			if err != nil {
				return err
			}
			if err := cmp.Or(flags.checked(), checkRange("length", length, 1, shape.Sequence), checkRange("sequences", sequences, 1, 1024)); err != nil {
				return err
			}
			var rounded kernel.Backend
			if precision != "f32" {
				k, err := cpu.NewRounded(flags.threads, precision == "bf16-emulated")
				if err != nil {
					return fmt.Errorf("--precision %s: %w", precision, err)
				}
				defer k.Close()
				rounded = k
			}
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.Step(k, rounded, dev, row, shape, sequences, length, flags.threads, flags.shown(c))
			})
		},
	}
	c.Flags().IntVar(&sequences, "sequences", sequences, "sequences in the batch")
	c.Flags().IntVar(&length, "length", length, "tokens in a sequence")
	c.Flags().StringVar(&name, "model", gpt2, "gpt2, llama or mixtral")
	c.Flags().StringVar(&precision, "precision", precision, "f32, or f32 and in turn bf16, or bf16-emulated (see device.cpu_precision)")
	return c
}

func benchSample(flags *benchFlags) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "sample",
		Short: "Sampling from GPT-2 124M or a LLaMA against the rate of this machine's memory",
		Long: `Sampling from GPT-2 124M, a token at a time, against the rate of this machine's memory, in
turn. The result is the bytes of weights that a token reads, over its seconds, over the faster
of reading and copying 256 MiB. With --threads of all cores it is the distance of dynmo sample
from the limit of memory. --model llama is a LLaMA of the same width and depth, with three
queries for each key. --model mixtral has eight experts; a token reads two of them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			shape, row, err := benchModel("sample", name)
			if err != nil {
				return err
			}
			flags.texts = true
			return flags.run(c, func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
				return nodebench.Sample(k, dev, row, shape, nodebench.Streamed, flags.threads, flags.shown(c))
			})
		},
	}
	c.Flags().StringVar(&name, "model", gpt2, "gpt2, llama or mixtral")
	return c
}

// benchModel returns the model that --model names. row is the prefix of the model's figures.
func benchModel(bench, name string) (shape model.Config, row string, err error) {
	shape, ok := nodebench.Sampled[name]
	if !ok {
		return shape, "", usageError{fmt.Errorf("--model %q, want one of %s", name, strings.Join(slices.Sorted(maps.Keys(nodebench.Sampled)), ", "))}
	}
	if name != gpt2 {
		bench += "-" + name
	}
	return shape, bench, nil
}

// shown returns the rounds of a command, with its progress bar.
func (f *benchFlags) shown(c *cobra.Command) nodebench.Rounds {
	return nodebench.Rounds{Count: f.rounds, Bar: barOf(c)}
}

// run measures on the host with the C kernels and reports the figures.
func (f *benchFlags) run(c *cobra.Command, measure func(kernel.Backend, device.Device) ([]nodebench.Result, error)) error {
	results, err := f.measure(measure)
	if err != nil {
		return err
	}
	return f.report(c, results)
}

// measure runs measure on the host with the C kernels, and returns its figures.
func (f *benchFlags) measure(measure func(kernel.Backend, device.Device) ([]nodebench.Result, error)) ([]nodebench.Result, error) {
	clock, err := f.newClock()
	if err != nil {
		return nil, err
	}
	open := cpu.New
	if f.texts {
		open = cpu.NewForTexts
	}
	k, err := open(f.threads)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	f.machine.Threads = f.threads
	if k, ok := k.(interface{ Path() string }); ok {
		f.machine.Path = k.Path()
	}
	if k, ok := k.(interface{ BLAS() string }); ok {
		f.machine.BLAS = k.BLAS()
	}
	f.advice = kernel.Advice(k.Identity())
	return measure(k, devcpu.New(clock))
}

// report prints figures and returns an error if any is invalid or too low.
func (f *benchFlags) report(c *cobra.Command, results []nodebench.Result) error {
	if err := f.write(c, results); err != nil {
		return err
	}
	f.warn(c, results)
	return unreached(results)
}

// write prints figures, and the machine on which they were measured.
func (f *benchFlags) write(c *cobra.Command, results []nodebench.Result) error {
	for i := range results {
		results[i].Machine = f.machine
	}
	if f.json {
		return writeLines(c.OutOrStdout(), results)
	}
	return nodebench.WriteTable(c.OutOrStdout(), results)
}

// warn prints why measured figures are doubtful.
func (f *benchFlags) warn(c *cobra.Command, results []nodebench.Result) {
	if f.machine.Threads == 0 {
		return // simulated
	}
	warnings := []string{nodebench.Unsteady(results), f.advice}
	if f.clock == "wall" { // CPU time is this process's own
		warnings = append(warnings, f.watch.Disturbed(f.machine.Threads))
	}
	for _, warning := range warnings {
		if warning != "" {
			fmt.Fprintf(c.ErrOrStderr(), "dynmo bench: warning: %s\n", warning)
		}
	}
}

// unreached returns an error if any figure is invalid or too low. A figure of a busy host is not too low.
func unreached(results []nodebench.Result) error {
	failed := 0
	for _, r := range results {
		if r.Wrong > 0 || !r.OK && !r.Busy {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d figures are invalid or too low", failed, len(results))
	}
	return nil
}

// checked returns the error of a flag that is out of its range.
func (f *benchFlags) checked() error {
	return cmp.Or(checkRange("threads", f.threads, 1, mostThreads), checkRange("rounds", f.rounds, 1, mostCount))
}

// newClock checks the flags and returns the clock that they ask for. A virtual clock ties the
// goroutine to its thread until the program ends.
func (f *benchFlags) newClock() (*device.Clock, error) {
	if err := f.checked(); err != nil {
		return nil, err
	}
	switch {
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
