package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/kind/moe"
	"dynmo/src/lab/roofline"
	"dynmo/src/lab/study"
	"dynmo/src/launch"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// profileCommand returns the command that measures the costs of layers.
func profileCommand() *cobra.Command {
	var sets []string
	var costs target
	var steps, experts int
	var once bool
	var estimate string
	c := &cobra.Command{
		Use:   "profile CONFIG -o FILE",
		Short: "Measure what every layer of the dense model costs on this device",
		Long: `Measure the cost of every layer of the dense model on this device. The measurement is a few
steps of real training with all layers on one rank, which must have memory for them. FILE is the
input of plan and simulate: seconds of every layer for one microbatch (the medians of the
steps), parameters and bytes. Stages, replicas, schedule and balancer of CONFIG do not matter.
The exception are experts that are spread over replicas: they are measured on as many ranks,
which share this device, and the fullest counts.

With --once layers that compute alike are measured once, in a model of one, two or four blocks:
a model of 48 blocks takes no more time or memory to measure. --experts N measures N of a
block's experts, with more rows each. A block of Mixtral 8x7B takes 23 GB to train, one with two
experts 6. The measurement then cannot show differences between like layers, as sparse
attention has them. Costs are those of a later step, in which exit.share of the tokens leave and
predictors of routed blocks have learned their share.

With --estimate nothing is measured, and no GPU is needed. FILE then estimates the costs on an
"a100" or an "h100", by a roofline of published rates and of the shares that kernels are assumed
to reach. Each kernel takes the longer of the times of its operations and of its bytes, and
2 us to start. The settings must say device.kind = "cuda". Such tables have the clock
"estimated", and so has every answer on them. "h100-paper" is an H100 with products of float32
and stored scores, which fits table 1 of the paper; it wants GPT-2's blocks and
device.precision = "f32".`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			settings, err := loadSettings(args[0], sets, c.ErrOrStderr())
			if err != nil {
				return usageError{err}
			}
			if err := checkRange("steps", steps, 1, mostCount); err != nil {
				return err
			}
			if experts != 0 && !once {
				return usageError{errors.New("--experts: has no effect, want --once beside it")}
			}
			if mpi.Launched() {
				leaveItToRank0(errors.New("launched"))
				return usageError{errors.New("profile measures one rank: run it without mpirun or srun")}
			}
			if err := costs.check(); err != nil {
				return err
			}
			var table record.Phase
			if estimate != "" {
				if err := onlyEstimates(c, settings); err != nil {
					return usageError{err}
				}
				table, err = estimated(undivided(settings, steps), estimate)
			} else {
				if err := useGPU(settings.Device.Kind); err != nil {
					return err
				}
				table, err = profiled(undivided(settings, steps), once, experts, barOf(c))
			}
			if err != nil {
				return asUsage(err)
			}
			text, err := json.Marshal(table)
			if err != nil {
				return err
			}
			text = bytes.ReplaceAll(text, []byte(`{"name":`), []byte("\n"+`{"name":`)) // a line for each layer
			return costs.write(c, func(out io.Writer) error {
				_, err := out.Write(append(text, '\n'))
				return err
			})
		},
	}
	c.Flags().StringArrayVar(&sets, "set", nil, "table.key=value, over what CONFIG says; may be given again")
	costs.required(c, "file to write; - is standard output")
	c.Flags().IntVar(&steps, "steps", 6, "training steps that are measured, after one that is not")
	c.Flags().BoolVar(&once, "once", false, "measure layers that compute alike once")
	c.Flags().IntVar(&experts, "experts", 0, "with --once: experts of a block that are measured, at least as many as a token goes to; 0: all")
	c.Flags().StringVar(&estimate, "estimate", "", "measure nothing: a table for a GPU that is not at hand, one of "+strings.Join(roofline.Names(), ", "))
	return c
}

// onlyEstimates refuses flags and settings without effect beside --estimate.
func onlyEstimates(c *cobra.Command, settings config.Config) error {
	for _, flag := range []string{"steps", "once", "experts"} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("--%s: has no effect beside --estimate, which measures nothing", flag)
		}
	}
	if settings.Device.Kind != "cuda" {
		return fmt.Errorf("--estimate: device.kind = %q, want \"cuda\" (--set device.kind=cuda)", settings.Device.Kind)
	}
	return nil
}

// estimated returns the estimated costs of the layers on the GPU of a name.
func estimated(c config.Config, name string) (record.Phase, error) {
	gpu, err := roofline.Known(name)
	if err != nil {
		return record.Phase{}, usageError{fmt.Errorf("--estimate: %w", err)}
	}
	table, err := roofline.Costs(c, gpu)
	if err != nil {
		return record.Phase{}, fmt.Errorf("--estimate: %w", err)
	}
	return record.Phase{Phase: cost.Phase{Model: search.Shape(c), Table: table}}, nil
}

// undivided returns settings under which one rank has the whole dense model, with the layers that
// kinds of dynamism add. If replicas share experts out, there are as many ranks as replicas.
func undivided(c config.Config, steps int) config.Config {
	standard := config.Default()
	c.Parallel.Stages = 1
	if !c.ReplicasDiffer() {
		c.Parallel.Replicas = 1
	}
	c.Parallel.Microbatches = min(c.Parallel.Microbatches, 8)
	c.Train.Steps, c.Train.Hash, c.Data.Validation = steps+1, false, ""
	c.Schedule, c.Dynamic.Kind, c.Balance = standard.Schedule, c.Dynamic.Structure(), standard.Balance
	c.Balance.Kind = "uniform"
	return c
}

// profiled returns the costs of the layers. With once, equal layers are measured once, and only
// `experts` of the experts are measured (0: all).
func profiled(c config.Config, once bool, experts int, bar *record.Bar) (record.Phase, error) {
	if !once {
		p, _, err := measured(c, bar)
		return p, err
	}
	few, err := study.NewFew(c)
	if err == nil && experts != 0 {
		few.Config, err = moe.Fewer(few.Config, experts)
	}
	if err != nil {
		return record.Phase{}, usageError{fmt.Errorf("--once: %w", err)}
	}
	p, taken, err := measured(few.Config, bar)
	if err == nil {
		p.Model, p.Table = search.Shape(c), few.Whole(p.Table, taken)
	}
	return p, err
}

// measured trains and returns the costs of the layers. It also returns the share of the tokens that
// passed routed blocks; 1 if there are none.
func measured(c config.Config, bar *record.Bar) (record.Phase, float64, error) {
	seen := costWatcher{bar: bar, steps: c.Train.Steps}
	_, err := launch.Launch(c, launch.Hooks{
		Stop:  func() bool { return false },
		Begin: func(launch.World) (record.Observer, error) { return &seen, nil },
		End:   func(train.Outcome) {},
	})
	if err != nil {
		return record.Phase{}, 1, err
	}
	taken := 1.0
	if seen.there > 0 {
		taken = float64(seen.taken) / float64(seen.there)
	}
	return record.Phase{Phase: cost.Phase{Model: seen.last.Model, Table: seen.last.Table}}, taken, nil
}

// costWatcher keeps the last costs that a run reports, and shows its progress.
type costWatcher struct {
	last  record.Phase
	bar   *record.Bar
	steps int

	taken, there float64 // tokens that passed routed blocks, and tokens before them, in all steps except the first
}

func (w *costWatcher) Costs(s record.Phase) error { w.last = s; return nil }
func (w *costWatcher) Step(m record.Metrics) error {
	w.bar.Show(int64(m.Step+1), int64(w.steps))
	for _, c := range m.Counts {
		if taken, there := dynamic.Taken(c.Name, c.Values); m.Step > 0 {
			w.there, w.taken = w.there+there, w.taken+taken
		}
	}
	return nil
}
func (*costWatcher) Event(record.Event) error { return nil }
func (*costWatcher) Trace(trace.Step) error   { return nil }
func (*costWatcher) Say(string)               {}
