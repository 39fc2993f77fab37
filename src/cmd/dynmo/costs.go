package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/lab/trainerlogs"
	"dynmo/src/record"
)

// costsCommand returns the command that finds the costs of layers in what another program printed.
func costsCommand() *cobra.Command {
	var r trainerlogs.Run
	var order string
	var out target
	var estimate configEstimate
	paths := make([]string, len(trainerlogs.Sources))
	c := &cobra.Command{
		Use:   "costs --SOURCE FILE --layout LAYOUT -o FILE",
		Short: "Find the seconds of layers in the log of another trainer",
		Long: `Find the seconds of layers in the log of another trainer, for dynmo layout.

SOURCE is one of the first flags below. Logs and traces have the times of whole stages. The seconds of
a layer follow from them by non-negative least squares, with the layout of the run that left the log:

  Et*8|t*8|t*8|t*8L     Megatron-LM's notation (E embedding, t block, m multi-token prediction, L head)
  8,8,8,8               blocks of each virtual stage

Layers of one kind get the same seconds. The command prints the seconds of each kind with their standard
error, the share of the stages' seconds that the fit does not explain, and the number of samples. It
names the kinds that the layout does not separate: dynmo layout keeps these together.

--config-json estimates the seconds of a model that nobody has measured, on the GPU of --estimate. FILE
describes a model of Hugging Face: Llama, Qwen2, Qwen3 (dense or with experts), Gemma 2, Gemma 3 (text),
Mixtral or DeepSeek-V3. Other types, and fields that may change the arithmetic, are refused. Each operation
takes the longer of the times of its multiply-adds and of its bytes, and 2 us to start. The head has the
vocabulary products of multi-token prediction too. The estimate assumes weights in bfloat16, gradients and
Adam's state in float32 on every replica, attention that stores no scores, tokens that go to all experts
evenly, and sequence parallelism beside --tensor-parallel. Messages take no time in it.

dynmo help trainers says what each log must have, and has the hook for trainers whose logs have too little.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if estimate.config != "" {
				return estimate.write(c, &out)
			}
			if err := estimate.onlyBesideConfig(c); err != nil {
				return err
			}
			source, path, err := namedSource(paths)
			if err != nil {
				return usageError{err}
			}
			if err := checkRun(&r, source, order); err != nil {
				return err
			}
			if err := out.check(); err != nil {
				return err
			}
			found, err := source.Read(path, r)
			if err != nil {
				return usageError{fmt.Errorf("--%s: %w", source.Flag, err)}
			}
			if err := out.write(c, func(w io.Writer) error { return writeCosts(w, found.Table) }); err != nil {
				return err
			}
			tellNotes(c.ErrOrStderr(), append(ignored(c, source, r), found.Notes...)...)
			if out.standard() {
				return nil
			}
			return tellAnswer(c, costsAnswer{found}, false)
		},
	}
	for i, s := range trainerlogs.Sources {
		c.Flags().StringVar(&paths[i], s.Flag, "", s.Usage)
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&r.Layout, "layout", "", "layout of the run that left the log")
	c.Flags().IntVar(&r.Stages, "stages", 0, "stages of its pipeline; 0: the virtual stages of --layout, divided by --chunks")
	c.Flags().IntVar(&r.Chunks, "chunks", 0, "parts of the model on each stage; 0: the virtual stages of --layout, divided by --stages, or 1")
	c.Flags().IntVar(&r.Microbatches, "microbatches", 0, "microbatches of a step, on each replica")
	c.Flags().StringVar(&order, "order", "", "order of zero-bubble's chunks over the stages: loop or v (default v for two chunks, else loop)")
	estimate.flags(c)
	out.required(c, "file to write, for dynmo layout --costs; - is standard output")
	return c
}

// namedSource returns the source that is named, and its path.
func namedSource(paths []string) (trainerlogs.Source, string, error) {
	var flags []string
	var at []int
	for i, s := range trainerlogs.Sources {
		flags = append(flags, "--"+s.Flag)
		if paths[i] != "" {
			at = append(at, i)
		}
	}
	if len(at) != 1 {
		flags = append(flags, "--config-json")
		return trainerlogs.Source{}, "", fmt.Errorf("%d sources, want one of %s", len(at), strings.Join(flags, ", "))
	}
	return trainerlogs.Sources[at[0]], paths[at[0]], nil
}

// checkRun completes and checks what is known of the run.
func checkRun(r *trainerlogs.Run, source trainerlogs.Source, order string) error {
	for _, f := range []struct {
		flag string
		n    int
		most int
	}{{"stages", r.Stages, 1024}, {"chunks", r.Chunks, 64}, {"microbatches", r.Microbatches, 1 << 14}} {
		if err := checkRange(f.flag, f.n, 0, f.most); err != nil {
			return err
		}
	}
	if source.NeedsLayout && r.Layout == "" {
		return usageError{errors.New("--layout: want that of the run, such as Et*8|t*8L, or the blocks of each virtual stage, such as 8,8")}
	}
	if !slices.Contains(source.Ignored, "order") {
		r.Order = order
	}
	return nil
}

// ignored names the flags that are given, and have no effect on a source.
func ignored(c *cobra.Command, source trainerlogs.Source, r trainerlogs.Run) (notes []string) {
	flags := source.Ignored
	if r.Layout == "" {
		flags = append(slices.Clone(flags), "stages", "chunks")
	}
	for _, flag := range flags {
		if c.Flags().Changed(flag) {
			notes = append(notes, fmt.Sprintf("--%s has no effect on --%s", flag, source.Flag))
		}
	}
	return notes
}

// writeCosts writes the costs as dynmo profile does, a line for each layer.
func writeCosts(w io.Writer, table cost.Table) error {
	text, err := json.Marshal(record.Phase{Phase: cost.Phase{Table: table}})
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte(`{"name":`), []byte("\n"+`{"name":`))
	_, err = w.Write(append(text, '\n'))
	return err
}

// known writes a share in per cent; - if it is not known.
func known(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*x)
}

// costsAnswer is the output of dynmo costs.
type costsAnswer struct{ trainerlogs.Costs }

func (a costsAnswer) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "kind\tlayers\tforward ms\tinput ms\tweight ms\t± %\tunexplained %\tsamples\t\n")
	for _, k := range a.Kinds {
		if k.Seconds.Seconds() == 0 {
			k.Deviation = math.NaN() // it has no share of them
		}
		samples := "-" // an estimate has none
		if k.Samples > 0 {
			samples = fmt.Sprint(k.Samples)
		}
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.3f\t%.3f\t%s\t%s\t%s\t\n", files.Visible(k.Name), k.Layers,
			1000*k.Seconds.Forward, 1000*k.Seconds.Input, 1000*k.Seconds.Weight, known(k.Deviation), known(k.Residual), samples)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range a.Table.Unseparated {
		if _, err := fmt.Fprintf(out, "The layout does not separate %s: dynmo layout keeps their numbers on each virtual stage.\n", n); err != nil {
			return err
		}
	}
	return nil
}
