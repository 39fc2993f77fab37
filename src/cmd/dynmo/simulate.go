package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"dynmo/src/cost"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/study"
	"dynmo/src/trace"
)

// simulateCommand returns the command that asks what if.
func simulateCommand() *cobra.Command {
	var w whatIf
	var file string
	var d madeUp
	var repack float64
	c := &cobra.Command{
		Use:   "simulate CONFIG --costs FILE",
		Short: "What if: a whole run on measured costs, on any number of ranks, without any",
		Long: `What if: a whole run on measured costs, on any number of ranks, without any.

FILE is costs.jsonl of a run directory, whose steps are then run again with the
stages, replicas, microbatches, schedule, memory and balancer of CONFIG and
--set, or one cost table, whose chain --dynamic lets change. Beside it the same
work runs on the first cuts, never balanced; the ceiling of the speedup is what
the best cuts could gain on those, by fill + microbatches x bottleneck. What the
file says really ran is simulated as it ran, and the error of the prediction is
printed; where layers moved and the model did not change, also that of what the
costs from before the move predict.

A line is steps that are alike: the seconds of a step, among them the allreduce
of gradients that no work hides; its makespan over the lower bound; the bubble
ratio and its four parts (see dynmo plan --help). Every time is simulated
(clock=sim) on costs of the clock that the file names. Moves take the time of
their bytes; measuring and deciding take none.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			series, o, err := w.read(args[0])
			if err != nil {
				return err
			}
			if !(repack >= 0 && repack < 1) {
				return usageError{fmt.Errorf("--repack %v: want a share of at least 0 and below 1", repack)}
			}
			o.Repack = repack
			measured := series[0].Clock
			costs, err := d.change(c, series, o)
			if err != nil {
				return usageError{err}
			}
			a, err := simulated(costs, o)
			if err != nil {
				return usageError{err}
			}
			a.Costs, a.Dynamic = measured, d.kind
			if d.kind == "" {
				a.Replayed = replayed(series)
			}
			if file != "" {
				steps, err := timelines(costs, o)
				if err != nil {
					return err
				}
				if err := writeFile("trace", file, func(out io.Writer) error { return record.WriteTrace(out, steps) }); err != nil {
					return err
				}
			}
			return tellAnswer(c, a, w.json)
		},
	}
	w.flags(c)
	d.flags(c)
	c.Flags().StringVar(&file, "trace", "", "write a step of each of the first run.trace_steps phases, of one replica, as a Chrome trace (Perfetto opens it)")
	c.Flags().Float64Var(&repack, "repack", 0, "pack onto fewer stages while throughput stays within this share of the first step's; 0 keeps all")
	return c
}

// simAnswer is what the command says; times are in seconds.
type simAnswer struct {
	Clock       string       `json:"clock"` // sim
	Costs       string       `json:"costs_clock"`
	Dynamic     string       `json:"dynamic,omitempty"` // what changed those costs
	Ranks       int          `json:"ranks"`
	Segments    []simSegment `json:"stretches"`
	Seconds     float64      `json:"seconds"`
	Moving      float64      `json:"moving_seconds"`
	RankSeconds float64      `json:"rank_seconds"`
	Static      float64      `json:"static_seconds"`    // the same work on the first cuts
	Speedup     float64      `json:"speedup"`           // static / this
	Ceiling     float64      `json:"ceiling,omitempty"` // of the speedup, see study.Run.Ceiling; absent where it is not known
	Replayed    []simReplay  `json:"replayed,omitempty"`
}

// simSegment is steps of the run that are alike.
type simSegment struct {
	Step     int        `json:"step"`
	Steps    int        `json:"steps"`
	Change   string     `json:"change,omitempty"` // of the model, before the first step
	Stages   int        `json:"stages"`
	Schedule string     `json:"schedule"`
	Cuts     []int      `json:"cuts"`
	Seconds  float64    `json:"step_seconds"`
	Exposed  float64    `json:"allreduce_seconds"` // not hidden by work
	Makespan float64    `json:"makespan"`
	Bound    float64    `json:"lower_bound"`
	Bubble   float64    `json:"bubble_ratio"`
	Idle     trace.Idle `json:"idle_seconds"` // means over the stages
	Moved    int64      `json:"moved_bytes"`  // before the first step
	Moving   float64    `json:"moving_seconds"`
}

// simReplay is a phase that really ran.
type simReplay struct {
	Step      int     `json:"step"`
	Steps     int     `json:"steps"`
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
	Error     float64 `json:"error"`
	Ahead     float64 `json:"ahead,omitempty"` // predicted before layers moved
}

// simulated runs a series with the settings' balancer, and without.
func simulated(series cost.Series, o study.Options) (simAnswer, error) {
	run, err := study.Simulate(series, o)
	if err != nil {
		return simAnswer{}, err
	}
	o.Static = true
	still, err := study.Simulate(series, o)
	if err != nil {
		return simAnswer{}, err
	}
	a := simAnswer{
		Clock: "sim", Ranks: o.Config.Parallel.Stages * o.Config.Parallel.Replicas,
		Seconds: run.Seconds, Moving: run.Moving, RankSeconds: run.RankSeconds,
		Static: still.Seconds, Speedup: still.Seconds / run.Seconds, Ceiling: still.Ceiling(),
	}
	for _, s := range run.Segments {
		idle := s.Idle
		idle.Balancing = s.Moving / float64(s.Steps)
		a.Segments = append(a.Segments, simSegment{
			Step: s.Step, Steps: s.Steps, Change: s.Change, Stages: s.Plan.Stages(), Schedule: string(s.Plan.Schedule.Kind),
			Cuts: s.Plan.Cuts, Seconds: s.Seconds, Exposed: s.Exposed, Makespan: s.Makespan,
			Bound: s.Plan.LowerBound, Bubble: 1 - s.Idle.Busy/s.Makespan,
			Idle: idle, Moved: s.Moved, Moving: s.Moving,
		})
	}
	return a, nil
}

// replayed compares the phases of a series that really ran with their simulation.
func replayed(series profile.Series) []simReplay {
	var list []simReplay
	for _, r := range study.Replay(series) {
		list = append(list, simReplay{r.Step, r.Steps, r.Measured, r.Predicted, r.Error(), r.Ahead})
	}
	return list
}
