package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"dynmo/src/lab/study"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// simulateCommand returns the command that simulates a run.
func simulateCommand() *cobra.Command {
	var w whatIf
	var timeline target
	var d madeUp
	var repack float64
	var pack map[string]int
	var runDir string
	c := &cobra.Command{
		Use:   "simulate CONFIG --costs FILE",
		Short: "Simulate a training run on measured costs, without running it",
		Long: `Simulate a training run on measured costs, on any number of ranks, without running it.

FILE is costs.jsonl of a run directory, or one cost table. The steps of a run are simulated
with the stages, replicas, microbatches, schedule, memory and balancer of CONFIG and --set.
From one cost table a run of --steps steps is made up, and --dynamic changes its model.
Recorded steps are also simulated as they ran, and the error of the prediction is printed.
If layers moved and the model did not change, the answer has a second error: that of the
prediction from the costs before the move.

The same work is also simulated on cuts that never move: "uniform" by blocks, as Megatron-LM
cuts, and "param" by parameters, as DeepSpeed does. The ceiling is the largest speedup over
such cuts that any cuts could give, by fill + microbatches x bottleneck. It is at least the
speedup of the run. "dense" is a step of the model of the first costs at its best cuts.
The same run with a head of 2 % of its seconds shows the share of the gain that a long head
makes. If no layer moved, a line gives the reason and a setting that would help, as at the end
of a real run. --dynamic all compares all kinds of dynamism. Costs are "fixed" there of a kind
that changes no layer's seconds, as pruning does while products stay dense (prune.csr_from).

The settings in [simulate] and [prune] are the assumptions of a kind (dynmo help config).
The answer names them, and refuses --set of a setting without effect. If a kind changes the
model hundreds of times, some changes are simulated and stand for the others; the answer
says how many.

[repack] of CONFIG packs the model onto fewer ranks as training does. --repack SHARE means
repack.kind=sustain with that tolerance. The answer lists the packings, with their steps,
ranks and nodes (ranks_per_node of --network). It has the mean number of ranks, the node-hours
without layers, and the throughput beside the dense model's. Packing is never undone:
if the model grows again, as one that thaws, the throughput shows it.

--run-dir DIR writes the records that a run of train writes, with clock=sim. table and report
read them, also beside those of real runs. Simulated records have no losses. What a change did
to the model is known to the run alone: the records have its kind only.

A line stands for equal steps. It has the seconds of a step, and the exposed ones: gradient sums
over replicas that no work hides, and copies of pieces of layers. It has the makespan over the
lower bound, and the bubble ratio. "segments" of --json are such lines, with the keys of
metrics.jsonl; what balancing takes after their steps is a mean.
Samples are sequences. Every time is simulated (clock=sim) on costs of the clock that the file
names. Moves take the time of their bytes, delayed by simulate.move_delay_most. Measuring and
deciding take the times of runs on CPUs of servers (clock=virtual), multiplied by
simulate.measure_times and simulate.decide_times.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := timeline.check(); err != nil {
				return err
			}
			q := question{command: "simulate", kinds: d.kinds()}
			if timeline.path == "" && runDir == "" {
				q.idle = []string{"run.trace_steps"}
			}
			series, o, err := w.read(args[0], q)
			if err != nil {
				return err
			}
			if !(repack >= 0 && repack < 1) {
				return usageError{fmt.Errorf("--repack %v: want a share of at least 0 and below 1", repack)}
			}
			if d.Steps > mostCount {
				return usageError{fmt.Errorf("--steps %d: want at most %d", d.Steps, mostCount)}
			}
			if repack > 0 {
				o.Config.Repack.Kind, o.Config.Repack.Tolerance = "sustain", repack
			}
			if o.Pack, err = packs(pack, o.Config.Parallel.Stages); err != nil {
				return usageError{err}
			}
			if b := o.Config.Balance; !b.Moves() && (repack > 0 || len(pack) > 0) {
				return usageError{fmt.Errorf("--repack, --pack: balance.kind = %s never moves layers, want partition or diffusion", b.Kind)}
			}
			if d.kind == allKinds {
				if timeline.path != "" || runDir != "" {
					return usageError{errors.New("--trace, --run-dir: --dynamic all has several runs, want one kind")}
				}
				all, err := d.all(series, o, barOf(c))
				if err != nil {
					return usageError{err}
				}
				for i := range all {
					all[i].Network = w.assumed
				}
				if w.json {
					return writeLines(c.OutOrStdout(), all)
				}
				return all.print(c.OutOrStdout())
			}
			costs, err := d.change(c, series, &o)
			if err != nil {
				return usageError{err}
			}
			if err := within(o.Pack, costs); err != nil {
				return usageError{err}
			}
			if d.kind == "" && o.Config.Packs() {
				o.Recorded = series
			}
			o.Show = stepsOf(barOf(c), runsOf*stepsIn(costs))
			if timeline.path == "" && runDir == "" {
				o.Config.Run.TraceSteps = 0
			}
			a, err := simulated(costs, o, d.kind, runDir, timeline.force)
			if err != nil {
				return usageError{err}
			}
			a.Costs, a.Network = series[0].Source(), w.assumed
			if d.kind == "" {
				a.Replayed = study.Replay(series)
			}
			if timeline.path != "" {
				err := timeline.write(c, func(out io.Writer) error { return record.WriteTrace(out, a.Run.Timelines) })
				if err != nil || timeline.standard() {
					return err
				}
			}
			return tellAnswer(c, a, w.json)
		},
	}
	w.flags(c)
	d.flags(c)
	c.Flags().StringVar(&runDir, "run-dir", "", "`DIR` for the records of the simulated run, as train writes them (clock sim)")
	c.Flags().BoolVar(&timeline.force, "force", false, "write over what --trace names, and over a simulated run in --run-dir")
	timeline.named(c, "trace", "", "write timelines of run.trace_steps steps of one replica, those of a run's trace.json, as a Chrome trace (Perfetto opens it); - is standard output, in place of the answer")
	c.Flags().Float64Var(&repack, "repack", 0, "pack onto the fewest stages whose throughput stays within this share of the dense model's (repack.kind=sustain, repack.tolerance); 0 leaves it to the settings")
	c.Flags().StringToIntVar(&pack, "pack", nil, "pack onto a number of stages from a step on, whatever that costs: 300=6,600=4")
	return c
}

// printReplayed prints how well simulated steps agree with measured ones.
func (a simAnswer) printReplayed(out io.Writer) error {
	var rows [][]string
	var errors, aheads []float64
	for _, r := range a.Replayed {
		row := []string{fromTo(r.Step, max(1, r.Steps)), duration(r.Measured), duration(r.Predicted), percent(r.Error), "", ""}
		errors = append(errors, math.Abs(r.Error))
		if r.Ahead > 0 {
			wrong := r.Ahead/r.Measured - 1
			row[4], row[5] = duration(r.Ahead), percent(wrong)
			aheads = append(aheads, math.Abs(wrong))
		}
		rows = append(rows, row)
	}
	header := []string{"steps", "measured", "predicted", "error", "before the move", "error"}
	if a.Replayed[0].Simulated {
		header[1] = "recorded"
		fmt.Fprintf(out, "\nnothing ran: a simulated run recorded the makespan (clock=sim, on costs of clock=%s)\n", a.Costs)
	} else {
		fmt.Fprintf(out, "\nmakespan of what really ran (clock=%s), and as simulated (clock=sim)\n", a.Costs)
	}
	if err := record.Table(out, header, rows[:min(shown, len(rows))]); err != nil {
		return err
	}
	if more := len(rows) - shown; more > 0 {
		fmt.Fprintf(out, "and %d lines more (--json)\n", more)
	}
	fmt.Fprintf(out, "error: median %.2f %%, largest %.2f %%\n", 100*trace.Median(errors), 100*slices.Max(errors))
	if len(aheads) > 0 {
		fmt.Fprintf(out, "error before the move: median %.2f %%, largest %.2f %%\n", 100*trace.Median(aheads), 100*slices.Max(aheads))
	}
	return nil
}

// percent formats a share with its sign.
func percent(share float64) string { return fmt.Sprintf("%+.2f %%", 100*share) }
