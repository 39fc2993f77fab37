package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/launch"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// profileCommand returns the command that measures what layers cost.
func profileCommand() *cobra.Command {
	var sets []string
	var costs target
	var steps int
	c := &cobra.Command{
		Use:   "profile CONFIG -o FILE",
		Short: "Measure what every layer of the dense model costs on this device",
		Long: `Measure what every layer of the dense model costs on this device: a few steps
of real training with all layers on one rank, which must have memory for them.
FILE is what plan and simulate read: seconds of every layer for one microbatch
(the medians of the steps), parameters and bytes. Stages, replicas, schedule and
balancer of CONFIG play no part.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			settings, err := loadSettings(args[0], sets)
			if err != nil {
				return usageError{err}
			}
			if steps < 1 {
				return usageError{fmt.Errorf("--steps %d: want at least 1", steps)}
			}
			if mpi.Launched() {
				leaveItToRank0(errors.New("launched"))
				return usageError{errors.New("profile measures one rank: run it without mpirun or srun")}
			}
			if err := costs.check(); err != nil {
				return err
			}
			if err := useGPU(settings.Device.Kind); err != nil {
				return err
			}
			table, err := measured(undivided(settings, steps), barOf(c))
			if err != nil {
				return asUsage(err)
			}
			text, err := json.MarshalIndent(table, "", " ")
			if err != nil {
				return err
			}
			return costs.write(c, func(out io.Writer) error {
				_, err := out.Write(append(text, '\n'))
				return err
			})
		},
	}
	c.Flags().StringArrayVar(&sets, "set", nil, "table.key=value, over what CONFIG says; may be given again")
	costs.required(c, "file to write; - is standard output")
	c.Flags().IntVar(&steps, "steps", 6, "training steps that are measured, after one that is not")
	return c
}

// undivided returns settings under which one rank holds the whole dense model, with what
// kinds of dynamism add to its chain.
func undivided(c config.Config, steps int) config.Config {
	standard := config.Default()
	c.Parallel.Stages, c.Parallel.Replicas = 1, 1
	c.Parallel.Microbatches = min(c.Parallel.Microbatches, 8)
	c.Train.Steps, c.Train.Hash, c.Data.Validation = steps+1, false, ""
	c.Schedule, c.Dynamic.Kind, c.Balance = standard.Schedule, c.Dynamic.Structure(), standard.Balance
	c.Balance.Kind = "uniform"
	return c
}

// measured trains and returns what the layers cost.
func measured(c config.Config, bar *record.Bar) (profile.Phase, error) {
	seen := costWatcher{bar: bar, steps: c.Train.Steps}
	_, err := launch.Launch(c, launch.Hooks{
		Stop:  func() bool { return false },
		Begin: func(launch.World) (record.Observer, error) { return &seen, nil },
		End:   func(train.Outcome) {},
	})
	if err != nil {
		return profile.Phase{}, err
	}
	return profile.Phase{Phase: cost.Phase{Model: seen.last.Model, Table: seen.last.Table}}, nil
}

// costWatcher keeps the costs that a run tells last, and shows how far it is.
type costWatcher struct {
	last  profile.Phase
	bar   *record.Bar
	steps int
}

func (w *costWatcher) Costs(s profile.Phase) error { w.last = s; return nil }
func (w *costWatcher) Step(m record.Metrics) error {
	w.bar.Show(int64(m.Step+1), int64(w.steps))
	return nil
}
func (*costWatcher) Event(record.Event) error { return nil }
func (*costWatcher) Trace(trace.Step) error   { return nil }
func (*costWatcher) Say(string)               {}
