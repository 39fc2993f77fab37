package main

import (
	"errors"
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
	var timeline target
	var d madeUp
	var repack float64
	c := &cobra.Command{
		Use:   "simulate CONFIG --costs FILE",
		Short: "What if: a whole run on measured costs, on any number of ranks, without any",
		Long: `What if: a whole run on measured costs, on any number of ranks, without any.

FILE is costs.jsonl of a run directory, whose steps are then run again with the
stages, replicas, microbatches, schedule, memory and balancer of CONFIG and
--set, or one cost table, from which a run of --steps steps is made up, in which
--dynamic lets the model change. What the file says really ran is simulated as it
ran, and the error of the prediction is printed; where layers moved and the model
did not change, also that of what the costs from before the move predict.

Beside it the same work runs on cuts that never move: "uniform" by blocks, as
Megatron-LM cuts, and "param" by parameters, as DeepSpeed does. The ceiling of the
speedup over such cuts is what the best ones could gain on them, by fill +
microbatches x bottleneck, and at least what the run gained. Where no layer moved, a line says why: layers are
too coarse (grain), the cuts are nearly the best (ceiling), a move takes
longer than it saves (price), or a gain is not sure or does not last (uncertainty).
--dynamic all sets the kinds of dynamism side by side.

A line is steps that are alike: the seconds of a step, among them the allreduce
of gradients that no work hides; its makespan over the lower bound; the bubble
ratio and its four parts (see dynmo plan --help). Every time is simulated
(clock=sim) on costs of the clock that the file names. Moves take the time of
their bytes; measuring and deciding take none.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := timeline.check(); err != nil {
				return err
			}
			series, o, err := w.read(args[0])
			if err != nil {
				return err
			}
			if !(repack >= 0 && repack < 1) {
				return usageError{fmt.Errorf("--repack %v: want a share of at least 0 and below 1", repack)}
			}
			if d.Steps > mostSteps {
				return usageError{fmt.Errorf("--steps %d: want at most %d", d.Steps, mostSteps)}
			}
			o.Repack = repack
			if d.kind == allKinds {
				if timeline.path != "" {
					return usageError{errors.New("--trace: --dynamic all has several runs, want one kind")}
				}
				all, err := d.all(series, o, barOf(c))
				if err != nil {
					return usageError{err}
				}
				if w.json {
					return writeLines(c.OutOrStdout(), all)
				}
				return all.print(c.OutOrStdout())
			}
			costs, err := d.change(c, series, o)
			if err != nil {
				return usageError{err}
			}
			o.Show = stepsOf(barOf(c), runsOf*stepsIn(costs))
			a, err := simulated(costs, o)
			if err != nil {
				return usageError{err}
			}
			a.Costs, a.Dynamic = series[0].Clock, d.kind
			if d.kind == "" {
				a.Replayed = replayed(series)
			}
			if timeline.path != "" {
				steps, err := timelines(costs, o)
				if err != nil {
					return err
				}
				err = timeline.write(c, func(out io.Writer) error { return record.WriteTrace(out, steps) })
				if err != nil || timeline.standard() {
					return err
				}
			}
			return tellAnswer(c, a, w.json)
		},
	}
	w.flags(c)
	d.flags(c)
	timeline.flags(c, "trace", "", "write a step of each of the first run.trace_steps phases, of one replica, as a Chrome trace (Perfetto opens it); - is standard output, in place of the answer")
	c.Flags().Float64Var(&repack, "repack", 0, "pack onto fewer stages while throughput stays within this share of the first step's; 0 keeps all")
	return c
}

// simAnswer is what the command says; times are in seconds.
type simAnswer struct {
	Clock       string        `json:"clock"` // sim
	Costs       string        `json:"costs_clock"`
	Dynamic     string        `json:"dynamic,omitempty"` // what changed those costs
	Ranks       int           `json:"ranks"`
	Segments    []simSegment  `json:"stretches"`
	Seconds     float64       `json:"seconds"`
	Tokens      float64       `json:"tokens_per_second"`
	Moving      float64       `json:"moving_seconds"`
	RankSeconds float64       `json:"rank_seconds"`
	Static      float64       `json:"static_seconds"`    // the same work on the first cuts
	Speedup     float64       `json:"speedup"`           // static / this
	Ceiling     float64       `json:"ceiling,omitempty"` // of the speedup, see study.Run.Ceiling; absent where it is not known
	Baselines   []simBaseline `json:"baselines"`
	Stayed      *simStay      `json:"stayed,omitempty"` // absent where layers moved
	Replayed    []simReplay   `json:"replayed,omitempty"`
}

// simBaseline is the same work on cuts that never move.
type simBaseline struct {
	Kind    string  `json:"balance_kind"`
	Cuts    string  `json:"cuts_of"`
	Seconds float64 `json:"seconds,omitempty"`
	Tokens  float64 `json:"tokens_per_second,omitempty"`
	Speedup float64 `json:"speedup,omitempty"`
	Ceiling float64 `json:"ceiling,omitempty"`
	Error   string  `json:"error,omitempty"` // why there are no such cuts, and no figures
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

// runsOf is how many runs simulated needs, mostly.
const runsOf = 3

// stepsIn returns how many steps are simulated of a series.
func stepsIn(series cost.Series) int {
	n := 0
	for _, s := range series {
		n += max(1, s.Steps)
	}
	return n
}

// stepsOf returns what shows that one step more of so many has been simulated.
func stepsOf(bar *record.Bar, total int) func() {
	done := 0
	return func() {
		done++
		bar.Show(int64(done), int64(total))
	}
}

// simulated runs a series with the settings' balancer, and without. The first
// cuts stand among the baselines where they are no other's.
func simulated(series cost.Series, o study.Options) (simAnswer, error) {
	run, err := study.Simulate(series, o)
	if err != nil {
		return simAnswer{}, err
	}
	first, others, err := study.Baselines(series, o)
	if err != nil {
		return simAnswer{}, err
	}
	stay, err := run.Stays(series, o)
	if err != nil {
		return simAnswer{}, err
	}
	l := o.Config.Parallel
	tokens := float64(l.Replicas*l.Microbatches*l.MicrobatchSize*o.Config.Model.Sequence) * float64(run.Steps())
	a := simAnswer{
		Clock: "sim", Ranks: l.Stages * l.Replicas,
		Seconds: run.Seconds, Tokens: tokens / run.Seconds, Moving: run.Moving, RankSeconds: run.RankSeconds,
		Static: first.Seconds, Speedup: first.Seconds / run.Seconds, Ceiling: ceiling(first, run), Stayed: stayed(stay, o),
	}
	for _, b := range others {
		if b.Err != nil {
			a.Baselines = append(a.Baselines, simBaseline{Kind: b.Kind, Cuts: b.Cuts, Error: b.Err.Error()})
			continue
		}
		a.Baselines = append(a.Baselines, simBaseline{b.Kind, b.Cuts, b.Seconds, tokens / b.Seconds, b.Seconds / run.Seconds, ceiling(b.Run, run), ""})
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

// ceiling returns the ceiling of the speedup over a static run: as estimated, and at
// least what a run has reached; 0 where it is not known.
func ceiling(static, reached study.Run) float64 {
	if c := static.Ceiling(); c > 0 {
		return max(c, static.Seconds/reached.Seconds)
	}
	return 0
}

// replayed compares the phases of a series that really ran with their simulation.
func replayed(series profile.Series) []simReplay {
	var list []simReplay
	for _, r := range study.Replay(series) {
		list = append(list, simReplay{r.Step, r.Steps, r.Measured, r.Predicted, r.Error(), r.Ahead})
	}
	return list
}
