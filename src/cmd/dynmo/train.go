package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/launch"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// trainCommand returns the command that trains.
func trainCommand() *cobra.Command {
	var sets []string
	var dir string
	c := &cobra.Command{
		Use:   "train CONFIG",
		Short: "Train a model; under mpirun or srun one rank of it, alone all ranks as goroutines",
		Long: `Train a model; under mpirun or srun one rank of it, alone all ranks as goroutines.

SIGTERM, SIGINT or SIGHUP to any rank ends the run after the step, with status
0; a second SIGINT ends the process at once, and nohup has SIGHUP ignored. mpirun that is asked to end asks the
ranks a second later, kills them after another second, and has a status of its
own: where steps are longer, signal a rank instead.

Exit status: 0 done, or stopped when asked; 1 failure; 2 bad command line,
settings, world or data, and nothing was trained.`,
		Args: func(c *cobra.Command, args []string) error {
			err := cobra.ExactArgs(1)(c, args)
			leaveItToRank0(err)
			return err
		},
		RunE: func(c *cobra.Command, args []string) error {
			settings, err := config.Load(args[0], sets)
			if err != nil {
				leaveItToRank0(err)
				return usageError{err}
			}
			if err := useGPU(settings.Device.Kind); err != nil {
				leaveItToRank0(err)
				return err
			}
			return runTraining(c, settings, dir)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		leaveItToRank0(err)
		return err
	})
	c.Flags().StringArrayVar(&sets, "set", nil, "table.key=value, over what CONFIG says; may be given again")
	c.Flags().StringVar(&dir, "run-dir", "", "directory for the run's records; none are kept without it")
	return c
}

// leaveItToRank0 holds an error back on every rank but the first for a moment:
// one that all ranks find before they know of each other is told once, since
// the launcher ends them all when rank 0 has told it.
func leaveItToRank0(err error) {
	if err != nil && mpi.Launched() && mpi.LaunchRank() != 0 {
		time.Sleep(2 * time.Second)
	}
}

func runTraining(c *cobra.Command, settings config.Config, dir string) error {
	ctx, stop := interruptible(c.Context())
	defer stop()
	watch := &watcher{out: c.ErrOrStderr(), settings: settings, dir: dir}
	defer watch.close()
	_, err := launch.Launch(settings, launch.Hooks{
		Stop:  func() bool { return ctx.Err() != nil },
		Begin: watch.begin,
		End: func(out train.Outcome) {
			watch.close()
			end(c, out, settings.Train.Steps, context.Cause(ctx))
		},
		Fail: func(err error) int {
			watch.close()
			return tell(c.Root().Name(), asUsage(err), c.ErrOrStderr())
		},
		Exit: os.Exit,
	})
	leaveItToRank0(err)
	return asUsage(err)
}

// end prints how a run ended. cause is why it was asked to end before the last
// step; nil if another rank was asked.
func end(c *cobra.Command, out train.Outcome, steps int, cause error) {
	fmt.Fprintf(c.OutOrStdout(), "%d steps, loss %.17g", out.Steps, out.Loss)
	if out.Hash != "" {
		fmt.Fprintf(c.OutOrStdout(), ", weights %s", out.Hash)
	}
	fmt.Fprintln(c.OutOrStdout())
	if !out.Stopped {
		return
	}
	if cause == nil {
		cause = errors.New("stopped by a signal to another rank")
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %v after step %d of %d\n", c.Root().Name(), cause, out.Steps, steps)
}

// asUsage marks what all ranks have in common as an error of the user's input.
func asUsage(err error) error {
	if shared, ok := errors.AsType[train.SharedError](err); ok && shared.Input {
		return usageError{err}
	}
	return err
}

// watcher records a run and shows its progress, on rank 0.
type watcher struct {
	out      io.Writer
	settings config.Config
	dir      string

	run      *record.Run // nil if nothing is kept
	progress *record.Progress
	skipped  int
}

// begin opens the run directory and says what is about to run, and where.
func (w *watcher) begin(about launch.World) (record.Observer, error) {
	p := record.Here(about.MPI)
	p.Revision, p.Kernels, p.Corpus = revision(), about.Kernels, about.Corpus
	if w.dir != "" {
		var err error
		if w.run, err = record.Open(w.dir, w.settings.TOML(), p); err != nil {
			return nil, usageError{err}
		}
	}
	w.progress = record.NewProgress(os.Stderr, w.settings.Train.Steps, w.settings.Train.LogEvery)
	for _, line := range w.settings.Ignored() {
		w.progress.Say("note: " + line)
	}
	l := w.settings.Parallel
	w.progress.Say(fmt.Sprintf("%s: %d ranks on %d hosts (%d stages x %d replicas), kernels %s, balance %s, clock=%s",
		w.settings.Run.Name, about.Ranks, about.Hosts, l.Stages, l.Replicas, about.Kernels,
		w.settings.Balance, about.Clock))
	if about.GPU != "" {
		w.progress.Say("note: rank 0 computes on GPU " + about.GPU)
	}
	if about.Transport != "" {
		w.progress.Say(fmt.Sprintf("note: %s carries the memory of GPUs between ranks", about.Transport))
	}
	if about.Unmetered != nil {
		w.progress.Say(fmt.Sprintf("note: energy is not metered: %v", about.Unmetered))
	}
	if about.Clock == "virtual" && w.settings.Run.Clock == "auto" {
		w.progress.Say("note: ranks outnumber cores: times are virtual, each rank's own CPU time and the network's of [comm]")
	}
	return w, nil
}

// Step records a step and shows it.
func (w *watcher) Step(m record.Metrics) error {
	if m.Skipped {
		w.skipped++
	}
	l := w.settings.Parallel
	batch := l.Replicas * l.Microbatches * l.MicrobatchSize
	w.progress.Step(record.Log{
		Iteration: m.Step + 1, Iterations: w.settings.Train.Steps,
		ConsumedSamples: int64(m.Step+1) * int64(batch), Seconds: float64(m.StepSeconds),
		LR: float64(m.LR), BatchSize: batch, Loss: float64(m.Loss), GradNorm: float64(m.GradNorm),
		Skipped: w.skipped, NaN: w.skipped,
	})
	if w.run == nil {
		return nil
	}
	return w.run.Step(m)
}

// Event records an event.
func (w *watcher) Event(e record.Event) error {
	if w.run == nil {
		return nil
	}
	return w.run.Event(e)
}

// Costs records what a phase cost.
func (w *watcher) Costs(s profile.Phase) error {
	if w.run == nil {
		return nil
	}
	return w.run.Costs(s)
}

// Trace records a timeline of the first replica.
func (w *watcher) Trace(s trace.Step) error {
	if w.run == nil {
		return nil
	}
	return w.run.Trace(s, 0)
}

// close ends the records and the progress bar, once.
func (w *watcher) close() {
	if w.progress != nil {
		w.progress.Close()
	}
	if w.run != nil {
		if err := w.run.Close(); err != nil {
			fmt.Fprintln(w.out, "dynmo: warning:", err)
		}
		w.run = nil
	}
}
