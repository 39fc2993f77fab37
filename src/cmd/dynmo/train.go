package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/fault"
	"dynmo/src/files"
	"dynmo/src/launch"
	"dynmo/src/record"
	"dynmo/src/train"
)

// trainCommand returns the command that trains.
func trainCommand() *cobra.Command {
	var sets []string
	var records runDirectory
	var ranks bool
	c := &cobra.Command{
		Use:   "train CONFIG",
		Short: "Train a model; under mpirun or srun one rank of it, alone all ranks as goroutines",
		Long: `Train a model. Under mpirun or srun a process is one rank; alone it has all ranks as
goroutines.

SIGUSR2, SIGTERM, SIGINT or SIGHUP to any rank ends the run after the step, with a checkpoint and
status 85. A second SIGINT ends the process at once, and under nohup SIGHUP is ignored. SIGUSR1
writes a checkpoint, and the run goes on.

To stop a run under Open MPI's mpirun, send SIGUSR2 to mpirun (kill -USR2 PID): mpirun forwards
SIGUSR2 and sets no deadline. SIGTERM, SIGHUP and Ctrl-C set one for the step and a checkpoint.
It is about a second in version 4.1 and a quarter of a second in 5. Version 6 leaves no time. The
status of mpirun is then 1. Under MPICH send SIGTERM to mpirun, which sets no deadline; SIGUSR2
would end mpirun and all ranks.

The run's records lie in a new directory, runs/NAME-YYYYmmdd-HHMMSS, or in that of --run-dir.
NAME is run.name. The first and the last line of the log name the directory. tensorboard
--logdir reads it, too.

TFLOP/s in the log are those of a rank, counted as in the dense model: 6 operations for each weight
and token and those of causal attention, whatever was pruned, frozen, skipped or computed twice.
MFU is their share of the GPU's peak, for GPUs whose data sheet dynmo knows, on the wall clock. On
CPUs with products in float32 the log has their share of such a product (sgemm). Rank 0 measures
it before the first step, in CPU time if it has one thread.

--resume resumes from the newest whole checkpoint of --run-dir, or of the newest directory of
run.name in runs that has one. If there is none the run begins at step 0, so one command line
serves the first start and all others. Ranks, stages, the balancer, the schedule and train.steps
may have changed.

Exit status: 0 done; 1 failure, or no checkpoint of the last step; 2 bad command line,
settings, world or data, and nothing was trained; 74 three checkpoints in a row could
not be written; 75 with elastic.release=restart: start the run again with the stages and
on the nodes of next.json in its directory, with a checkpoint; 85 stopped by a signal
before its last step, with a checkpoint (0 with train.stopped_is_success, or where no
checkpoints are kept); 93 the loss or the gradient norm is not finite: the same start would
end the same way.`,
		Args: func(c *cobra.Command, args []string) error {
			return refuse(c, cobra.ExactArgs(1)(c, args))
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := launch.CheckLauncher(); err != nil {
				return usageError{err}
			}
			settings, err := loadSettings(args[0], sets, c.ErrOrStderr())
			err = cmp.Or(err, records.check(c.Flags().Changed("run-dir")))
			if err != nil {
				return refuse(c, usageError{err})
			}
			if ranks {
				return tellRanks(c, settings)
			}
			wanted, err := fault.Parse(os.Getenv(fault.Variable), settings.Parallel.Stages*settings.Parallel.Replicas)
			if err != nil {
				return refuse(c, usageError{err})
			}
			if err := useGPU(settings.Device.Kind); err != nil {
				return refuse(c, err)
			}
			return runTraining(c, settings, records, wanted, append([]string{os.Args[0], "train", args[0]}, setWords(sets)...))
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return refuse(c, nearFlag(c, err)) })
	c.Flags().StringArrayVar(&sets, "set", nil, "table.key=value, over what CONFIG says; may be given again")
	c.Flags().StringVar(&records.dir, "run-dir", "", "`DIR` for the run's records, in which none lies yet (default a new one in runs); \"\" keeps none")
	c.Flags().BoolVar(&records.none, "no-run-dir", false, "keep no records")
	c.Flags().BoolVar(&ranks, "ranks", false, "print how many ranks the settings want, and on what, and train nothing")
	c.Flags().BoolVar(&records.force, "force", false, "write over the run that --run-dir holds, and its checkpoints")
	c.Flags().BoolVar(&records.resume, "resume", false, "go on from the newest checkpoint, if there is one")
	return c
}

// refuse reports an error in the command line or settings on the first rank that has one.
func refuse(c *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return launch.Refuse(err, func(err error) int { return tell(c.Root().Name(), usageError{err}, c.ErrOrStderr()) }, os.Exit)
}

// tellRanks prints the numbers that a job script needs from the settings.
func tellRanks(c *cobra.Command, settings config.Config) error {
	p := settings.Parallel
	fmt.Fprintf(c.OutOrStdout(), "ranks %d stages %d replicas %d device %s\n", p.Stages*p.Replicas, p.Stages, p.Replicas, settings.Device.Kind)
	return nil
}

// leaveItToRank0 delays an error on every rank but the first for a moment. All ranks may find the
// same error before MPI starts. The launcher ends all ranks when rank 0 has reported the error, so
// the error is reported once.
func leaveItToRank0(err error) {
	if err != nil && mpi.Launched() && mpi.LaunchRank() != 0 {
		time.Sleep(2 * time.Second)
	}
}

// runTraining trains. again is the command line of this training, without the run directory.
func runTraining(c *cobra.Command, settings config.Config, records runDirectory, wanted *fault.Fault, again []string) error {
	from, err := records.from(settings.Run.Name)
	if err != nil {
		leaveItToRank0(err)
		return usageError{err}
	}
	recorded := ""
	if from != "" {
		recorded = filepath.Join(from, record.SettingsFile)
	}
	resolved, err := settings.Resolve(recorded)
	if err != nil {
		return refuse(c, usageError{err})
	}
	if _, err := dynamic.Open(settings); err != nil { // checked early; each rank reads the file of dynamic.replay again
		return refuse(c, usageError{err})
	}
	ctx, stop := interruptible(c.Context())
	defer stop()
	defer context.AfterFunc(ctx, func() { // a step may take minutes
		if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok && (!mpi.Launched() || mpi.LaunchRank() == 0) {
			if term.IsTerminal(int(os.Stderr.Fd())) {
				fmt.Fprintln(c.ErrOrStderr()) // behind the progress bar
			}
			fmt.Fprintln(c.ErrOrStderr(), s.explain(!records.none && settings.Checkpoint.Every != "never", os.Getenv("OMPI_COMM_WORLD_SIZE") != ""))
		}
	})()
	signal.Ignore(syscall.SIGPIPE) // a log that nobody reads any more ends no run
	asked, silence := saveRequests()
	defer silence()
	watch := &watcher{out: c.ErrOrStderr(), settings: settings, resolved: resolved, records: records}
	var known atomic.Value // the run directory, on every rank that has learned of it
	resume := func(more ...string) string {
		line := append(slices.Clone(again), more...)
		at, _ := os.Getwd()
		return files.Visible(resumeCommand(line, at, known.Load().(string), settings, os.Getenv, findAncestors()))
	}
	advise := func(err error) error { // adds the next step to an error
		err = asUsage(err)
		if dir, _ := known.Load().(string); dir == "" || !checkpoint.Has(dir) {
			if exitStatus(err) == exitUnsaved {
				return fmt.Errorf("%w: the run has no checkpoint: start it again once one can be written", err)
			}
			return err
		}
		switch exitStatus(err) {
		case exitFailure:
			return resumableError{err, resume()}
		case exitUnsaved:
			return resumableError{fmt.Errorf("%w: once checkpoints can be written, resume from the newest one", err), resume()}
		case exitDiverged:
			if settings.Train.OnNaN == "stop" { // else the run would end the same way
				return resumableError{err, resume(setWords([]string{"train.on_nan=skip"})...)}
			}
		}
		return err
	}
	out, err := launch.Launch(settings, launch.Hooks{
		Stop:    func() bool { return ctx.Err() != nil },
		Save:    asked,
		Resume:  from,
		RunDir:  func() string { return watch.dir },
		Records: func(dir string) { known.Store(dir) },
		Begin:   watch.begin,
		End: func(out train.Outcome) {
			_ = watch.close() // its error is handled after the run
			end(c, out, settings.Train.Steps, settings.Dynamic.Replay != "", context.Cause(ctx))
			watch.sumUp(out, nil)
			if out.Stopped && out.Next == nil && watch.dir != "" && out.Saved == out.Steps {
				fmt.Fprintf(c.ErrOrStderr(), "to resume: %s\n", resume())
			}
		},
		Fail: func(err error) int {
			_ = watch.close() // err is the cause
			watch.sumUp(train.Outcome{}, err)
			return tell(c.Root().Name(), advise(err), c.ErrOrStderr())
		},
		Fault: wanted,
		Exit:  exit,
	})
	if err = cmp.Or(err, watch.close()); err != nil {
		watch.sumUp(train.Outcome{}, err)
	}
	leaveItToRank0(err)
	return advise(cmp.Or(err, outcomeStatus(settings, out, watch.dir != "")))
}

// outcomeStatus returns the status of a run that has not failed. A status other than nil has one of
// these causes: a signal stopped the run before its last step, the run is to start again with fewer
// stages, or checkpoints could not be written. recorded reports that this process is rank 0 of a
// run with a run directory. Other ranks end with 0 before it: a launcher kills the remaining ranks
// once one has another status.
func outcomeStatus(c config.Config, out train.Outcome, recorded bool) error {
	switch {
	case !recorded || c.Checkpoint.Every == "never":
		return nil
	case out.Saved == 0 && !out.Stopped && out.Steps > 0:
		return fmt.Errorf("all %d steps are done, but there is no checkpoint: free space, then --resume begins at step 0", out.Steps)
	case out.Saved < out.Steps && !out.Stopped:
		return fmt.Errorf("all %d steps are done, but their checkpoint is missing: the newest one has %d steps", out.Steps, out.Saved)
	case out.Next != nil:
		afterOthers()
		return statusError(exitNext)
	case out.Saved < out.Steps:
		return fmt.Errorf("stopped after %d steps without a checkpoint: the newest one has %d steps", out.Steps, out.Saved)
	case !out.Stopped || c.Train.StoppedIsSuccess:
		return nil
	}
	afterOthers()
	return statusError(exitStopped)
}

// afterOthers waits until the other ranks have ended. A launcher kills the remaining ranks once one
// has ended with a status other than 0.
func afterOthers() {
	if mpi.Launched() {
		time.Sleep(500 * time.Millisecond)
	}
}

// end prints how a run ended. cause is the signal that asked this rank to stop before the last
// step; nil if another rank was asked.
func end(c *cobra.Command, out train.Outcome, steps int, replayed bool, cause error) {
	loss := fmt.Sprintf("loss %.17g", out.Loss)
	if replayed {
		loss = "replayed: no loss"
	}
	if out.Hash != "" {
		loss += ", weights " + out.Hash
	}
	fmt.Fprintf(c.OutOrStdout(), "%d steps, %s\n", out.Steps, loss)
	if n := out.Next; n != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: stopped to give nodes back: start the run again with %d stages on %s\n",
			c.Root().Name(), n.Stages, strings.Join(n.Nodes, ","))
		return
	}
	if !out.Stopped {
		return
	}
	if cause == nil {
		cause = errors.New("stopped by a signal to another rank")
	}
	text := fmt.Sprintf("%s: %v after %d of %d steps", c.Root().Name(), cause, out.Steps, steps)
	if out.Saved == out.Steps && out.Steps > 0 {
		text += "; their checkpoint is saved"
	}
	fmt.Fprintln(c.ErrOrStderr(), text)
}

// asUsage marks an error that all ranks share as an error of the user's input.
func asUsage(err error) error {
	if shared, ok := errors.AsType[comm.SharedError](err); ok && shared.Input {
		return usageError{err}
	}
	return err
}
