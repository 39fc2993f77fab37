package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"dynmo/src/cost"
	"dynmo/src/plan"
	"dynmo/src/record"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// simulateCommand returns the command that asks what if.
func simulateCommand() *cobra.Command {
	var w whatIf
	var file, dynamism string
	var steps, from, every int
	var repack float64
	c := &cobra.Command{
		Use:   "simulate CONFIG --costs FILE",
		Short: "What if: a whole run on measured costs, on any number of ranks, without any",
		Long: `What if: a whole run on measured costs, on any number of ranks, without any.

FILE is costs.jsonl of a run directory, whose steps are then run again with the
stages, replicas, microbatches, schedule, memory and balancer of CONFIG and
--set, or one cost table, whose chain --dynamic lets change. Beside it the same
work runs on the first cuts, never balanced. What the file says really ran is
simulated as it ran, and the error of the prediction is printed.

Every time is simulated (clock=sim) on costs of the clock that the file names.
Moves take the time of their bytes; measuring and deciding take none.`,
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
			if dynamism != "" {
				if series, err = generated(series, dynamism, steps, from, every, o); err != nil {
					return usageError{err}
				}
			}
			a, run, err := simulated(series, o)
			if err != nil {
				return usageError{err}
			}
			if file != "" {
				if err := writeTimelines(file, run); err != nil {
					return err
				}
			}
			if w.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(a)
			}
			return a.print(c.OutOrStdout())
		},
	}
	w.flags(c)
	c.Flags().StringVar(&file, "trace", "", "write a step of every stretch as a Chrome trace (Perfetto opens it)")
	c.Flags().StringVar(&dynamism, "dynamic", "", "let the first table's chain change like this: "+dynamisms)
	c.Flags().IntVar(&steps, "steps", 1000, "steps of the run that --dynamic makes up")
	c.Flags().IntVar(&from, "from", 0, "step of that run in which the model changes first")
	c.Flags().IntVar(&every, "every", 0, "steps between its changes; 0 is what the paper does with that kind")
	c.Flags().Float64Var(&repack, "repack", 0, "pack onto fewer stages while throughput stays within this share of the first step's; 0 keeps all")
	return c
}

// dynamisms are what sim.Generate knows.
const dynamisms = "prune, freeze, moe, attention, exit or mod"

// generated makes up a run from a chain's dense costs.
func generated(series cost.Series, kind string, steps, from, every int, o plan.Options) (cost.Series, error) {
	out, err := sim.Generate(kind, series[0].Mean(), steps, o.Config.Run.Seed, sim.Options{
		Start: from, Every: every, Microbatches: o.Config.Parallel.Microbatches,
	})
	if err != nil {
		return nil, fmt.Errorf("--dynamic: %w", err)
	}
	return out, nil
}

// simAnswer is what the command says; times are in seconds.
type simAnswer struct {
	Clock    string      `json:"clock"` // sim
	Costs    string      `json:"costs_clock"`
	Ranks    int         `json:"ranks"`
	Legs     []simLeg    `json:"stretches"`
	Seconds  float64     `json:"seconds"`
	Moving   float64     `json:"moving_seconds"`
	Ranked   float64     `json:"rank_seconds"`
	Static   float64     `json:"static_seconds"` // the same work on the first cuts
	Speedup  float64     `json:"speedup"`        // static / this
	Replayed []simReplay `json:"replayed,omitempty"`
}

// simLeg is steps of the run that are alike.
type simLeg struct {
	Step     int        `json:"step"`
	Steps    int        `json:"steps"`
	Change   string     `json:"change,omitempty"`
	Stages   int        `json:"stages"`
	Schedule string     `json:"schedule"`
	Cuts     []int      `json:"cuts"`
	Seconds  float64    `json:"step_seconds"`
	Exposed  float64    `json:"allreduce_seconds"` // not hidden by work
	Makespan float64    `json:"makespan"`
	Bound    float64    `json:"lower_bound"`
	Bubble   float64    `json:"bubble_ratio"`
	Busy     float64    `json:"busy_seconds"`
	Idle     idleAnswer `json:"idle_seconds"`
	Moved    int64      `json:"moved_bytes"`
	Moving   float64    `json:"moving_seconds"`
}

// simReplay is a stretch that really ran.
type simReplay struct {
	Step      int     `json:"step"`
	Steps     int     `json:"steps"`
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
	Error     float64 `json:"error"`
}

// simulated runs a series with the settings' balancer, and without.
func simulated(series cost.Series, o plan.Options) (simAnswer, plan.Run, error) {
	run, err := plan.Walk(series, o)
	if err != nil {
		return simAnswer{}, run, err
	}
	static := o
	static.Static = true
	still, err := plan.Walk(series, static)
	if err != nil {
		return simAnswer{}, run, err
	}
	replayed, err := plan.Replay(series, o)
	if err != nil {
		return simAnswer{}, run, err
	}
	a := simAnswer{
		Clock: "sim", Costs: series[0].Clock, Ranks: o.Config.Parallel.Stages * o.Config.Parallel.Replicas,
		Seconds: run.Seconds, Moving: run.Moving, Ranked: run.RankSeconds,
		Static: still.Seconds, Speedup: still.Seconds / run.Seconds,
	}
	for _, l := range run.Legs {
		idle := l.Plan.Idle
		idle.Balancing = l.Moving / float64(l.Steps)
		a.Legs = append(a.Legs, simLeg{
			Step: l.Step, Steps: l.Steps, Change: l.Change, Stages: l.Stages, Schedule: string(l.Plan.Schedule.Kind),
			Cuts: l.Plan.Cuts, Seconds: l.Seconds, Exposed: l.Exposed, Makespan: l.Plan.Step.Makespan(),
			Bound: l.Plan.LowerBound, Bubble: l.Plan.Step.BubbleRatio(), Busy: mean(l.Plan.Step.Busy),
			Idle: idleAnswer(idle), Moved: l.Moved, Moving: l.Moving,
		})
	}
	for _, r := range replayed {
		a.Replayed = append(a.Replayed, simReplay{r.Step, r.Steps, r.Measured, r.Predicted, r.Error()})
	}
	return a, run, nil
}

// shown is how many stretches are printed before the rest is left to --json.
const shown = 40

// print writes the answer for people.
func (a simAnswer) print(out io.Writer) error {
	header := []string{"step", "steps", "stages", "schedule", "step time", "to bound", "bubble", "inherent", "imbalance", "memory", "communication", "allreduce", "moved", "before it"}
	var rows [][]string
	for i, l := range a.Legs {
		if i == shown {
			break
		}
		why := l.Change
		if l.Moved > 0 {
			why = "balanced"
		}
		rows = append(rows, []string{
			fmt.Sprint(l.Step), fmt.Sprint(l.Steps), fmt.Sprint(l.Stages), l.Schedule, milliseconds(l.Seconds),
			fmt.Sprintf("%.3f", l.Makespan/l.Bound), fmt.Sprintf("%.3f", l.Bubble),
			milliseconds(l.Idle.Inherent), milliseconds(l.Idle.Imbalance), milliseconds(l.Idle.Memory),
			milliseconds(l.Idle.Communication), milliseconds(l.Exposed),
			fmt.Sprintf("%.1f MB", float64(l.Moved)/1e6), why,
		})
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	if more := len(a.Legs) - shown; more > 0 {
		fmt.Fprintf(out, "and %d stretches more (--json)\n", more)
	}
	fmt.Fprintf(out, "\n%d ranks: %.4g s, of which moving layers %.2g s; on the first cuts %.4g s: %.3fx  (clock=sim, on costs of clock=%s)\n",
		a.Ranks, a.Seconds, a.Moving, a.Static, a.Speedup, a.Costs)
	if len(a.Replayed) == 0 {
		return nil
	}
	rows = nil
	var errors []float64
	for i, r := range a.Replayed {
		errors = append(errors, math.Abs(r.Error))
		if i < shown {
			rows = append(rows, []string{
				fmt.Sprint(r.Step), fmt.Sprint(r.Steps), milliseconds(r.Measured), milliseconds(r.Predicted), fmt.Sprintf("%+.2f %%", 100*r.Error),
			})
		}
	}
	fmt.Fprintf(out, "\nwhat really ran, simulated as it ran (makespan; clock=%s beside clock=sim):\n", a.Costs)
	if err := record.Table(out, []string{"step", "steps", "measured", "predicted", "error"}, rows); err != nil {
		return err
	}
	slices.Sort(errors)
	_, err := fmt.Fprintf(out, "error: median %.2f %%, largest %.2f %%\n", 100*errors[len(errors)/2], 100*errors[len(errors)-1])
	return err
}

// writeTimelines writes one step of every leg, one behind the other.
func writeTimelines(path string, run plan.Run) error {
	var steps []trace.Step
	begin := 0.0
	for _, l := range run.Legs {
		step := trace.Step{Step: l.Step, Clock: "sim"}
		for _, spans := range l.Plan.Step.Spans {
			moved := slices.Clone(spans)
			for i := range moved {
				moved[i].Start += begin
				moved[i].End += begin
			}
			step.Stages = append(step.Stages, moved)
		}
		begin += l.Plan.Step.Makespan()
		steps = append(steps, step)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	err = record.WriteTrace(f, steps)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	return nil
}
