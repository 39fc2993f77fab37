package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/study"
	"dynmo/src/trace"
)

// planCommand returns the command that plans a step.
func planCommand() *cobra.Command {
	var w whatIf
	var step int
	var file string
	c := &cobra.Command{
		Use:   "plan CONFIG --costs FILE",
		Short: "Where layers should live and what a step will take: cuts, bytes, schedule, idle time by cause",
		Long: `Where layers should live and what a step will take, on measured costs. Nothing
is trained. Cuts are the exact partition, improved on the simulated step; with
balance.kind = uniform, param, regex or layout they are those.

The bubble ratio is the share of the stages' time in which they wait, and has
four parts: inherent to the schedule, were all stages loaded equally; by
imbalance, below 0 where unequal stages wait less; for memory, by a limit on
microbatches in flight; for communication. The paper's equation (1) stands
beside it where its assumptions hold: an even number of equal stages and as many
microbatches. The last table has other schedules, each at its own best cuts.

Every time is simulated (clock=sim) on costs of the clock that the table names.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			series, o, err := w.read(args[0])
			if err != nil {
				return err
			}
			table, err := at(series.Costs(), step)
			if err != nil {
				return usageError{err}
			}
			best, err := planned(table, o)
			if err != nil {
				return usageError{err}
			}
			if file != "" {
				if err := writeFile("csv", file, func(out io.Writer) error { return schedule.WriteCSV(out, best.Schedule) }); err != nil {
					return err
				}
			}
			a := answered(table, best, o)
			return tellAnswer(c, a, w.json)
		},
	}
	w.flags(c)
	c.Flags().IntVar(&step, "step", -1, "step whose costs to plan for; -1 is the last")
	c.Flags().StringVar(&file, "csv", "", "write the schedule as torchtitan and schedule.kind = file read it")
	return c
}

// planned plans a step. Errors are the settings'.
func planned(t cost.Table, o study.Options) (plan.Plan, error) {
	p, err := plan.New(o.Config, o.Network, o.Fixed)
	if err != nil {
		return plan.Plan{}, err
	}
	first, err := p.First(t)
	cuts := first.Cuts
	if o.Config.Balance.Moves() {
		if cuts, err = p.Cuts(t); err != nil && o.Config.Balance.MemoryLimitBytes > 0 {
			err = fmt.Errorf("balance.memory_limit_bytes = %d: %w", o.Config.Balance.MemoryLimitBytes, err)
		}
	}
	if err != nil {
		return plan.Plan{}, err
	}
	return p.At(cost.Phase{Table: t}, cuts)
}

// planAnswer is what the command says; times are in seconds.
type planAnswer struct {
	Clock      string              `json:"clock"` // sim
	Costs      string              `json:"costs_clock"`
	Asked      string              `json:"schedule_kind"`    // of the settings
	Schedule   string              `json:"schedule"`         // which auto or list may have chosen
	Cuts       partition.Partition `json:"cuts"`             // over virtual stages
	Layout     string              `json:"layout,omitempty"` // Megatron-LM's notation, where it can say it
	Stages     []planStage         `json:"stages"`
	Step       float64             `json:"step_seconds"`
	Bound      float64             `json:"lower_bound"`
	Bottleneck float64             `json:"bottleneck"`
	Optimum    float64             `json:"optimum"`
	Bubble     float64             `json:"bubble_ratio"`
	Idle       trace.Idle          `json:"idle_seconds"`                 // means over the stages
	Paper      *float64            `json:"paper_bubble_ratio,omitempty"` // the paper's equation (1), where it holds
	Others     []planOther         `json:"schedules"`
}

// planStage is a stage of a plan.
type planStage struct {
	Layers         []int   `json:"layers"`
	Forward        float64 `json:"forward"`
	BackwardInput  float64 `json:"backward_input"`
	BackwardWeight float64 `json:"backward_weight"`
	InFlight       []int   `json:"in_flight"` // by chunk
	Cap            int     `json:"in_flight_cap,omitempty"`
	Bytes          int64   `json:"bytes"`
}

// planOther is another schedule, at its own best cuts.
type planOther struct {
	Schedule string  `json:"schedule"`
	Step     float64 `json:"step_seconds"`
	Bubble   float64 `json:"bubble_ratio"`
	ToBound  float64 `json:"to_bound"`
	Chunks   int     `json:"chunks"`
	InFlight int     `json:"in_flight"` // most microbatches of a chunk on any stage
	Bytes    int64   `json:"bytes"`     // of the stage that needs most
}

// answered says what a plan is.
func answered(t cost.Table, best plan.Plan, o study.Options) planAnswer {
	a := planAnswer{
		Clock: "sim", Costs: t.Clock, Asked: o.Config.Schedule.Kind, Schedule: string(best.Schedule.Kind), Cuts: best.Cuts,
		Step: best.Step.Makespan(), Bound: best.LowerBound, Bottleneck: best.Bottleneck, Optimum: best.Optimum,
		Bubble: best.Step.BubbleRatio(), Idle: best.Idle, Paper: paperBubble(best, o),
	}
	model := o.Config.Model
	if notation, err := partition.FormatLayout(best.Cuts, model.Blocks, model.PerBlock(), model.HeadShards); err == nil {
		a.Layout = notation
	}
	m := best.Schedule.Map
	for stage := range m.Stages {
		s := planStage{Layers: m.Owners(best.Cuts).Layers(stage), Bytes: best.Bytes[stage]}
		for chunk := range m.Chunks {
			v := m.Place(stage, chunk)
			s.Forward += best.Costs[v].Forward
			s.BackwardInput += best.Costs[v].Input
			s.BackwardWeight += best.Costs[v].Weight
			s.InFlight = append(s.InFlight, best.InFlight[v])
		}
		if best.Caps != nil {
			s.Cap = best.Caps[stage]
		}
		a.Stages = append(a.Stages, s)
	}
	for _, other := range plan.Others(t, o.Config, o.Network, o.Fixed) {
		a.Others = append(a.Others, planOther{
			Schedule: string(other.Schedule.Kind), Step: other.Step.Makespan(), Bubble: other.Step.BubbleRatio(),
			ToBound: other.Step.Makespan() / other.LowerBound,
			Chunks:  other.Schedule.Map.Chunks, InFlight: slices.Max(other.Schedule.InFlight()), Bytes: slices.Max(other.Bytes),
		})
	}
	return a
}

// print writes the answer for people.
func (a planAnswer) print(out io.Writer) error {
	header := []string{"stage", "layers", "forward", "backward-input", "backward-weight", "in flight", "bytes"}
	var rows [][]string
	for stage, s := range a.Stages {
		flying := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.InFlight), "[]"), " ", " + ")
		if s.Cap > 0 {
			flying += fmt.Sprintf(" (cap %d)", s.Cap)
		}
		rows = append(rows, []string{
			fmt.Sprint(stage), ranges(s.Layers), duration(s.Forward), duration(s.BackwardInput),
			duration(s.BackwardWeight), flying, megabytes(s.Bytes),
		})
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	line := func(name, format string, values ...any) {
		fmt.Fprintf(out, "%-13s %s\n", name, fmt.Sprintf(format, values...))
	}
	if a.Layout != "" {
		line("layout", "%s", a.Layout)
	}
	if a.Asked == a.Schedule {
		line("schedule", "%s", a.Schedule)
	} else {
		line("schedule", "%s, chosen by %s", a.Schedule, a.Asked)
	}
	line("step", "%s  (clock=sim, on costs of clock=%s)", duration(a.Step), a.Costs)
	line("lower bound", "%s  (the step takes %s times that)", duration(a.Bound), ratio(a.Step/a.Bound))
	line("bottleneck", "%s per microbatch; optimum %s", duration(a.Bottleneck), duration(a.Optimum))
	if a.Paper != nil {
		line("bubble ratio", "%s  (the paper's equation (1): %s)", ratio(a.Bubble), ratio(*a.Paper))
	} else {
		line("bubble ratio", "%s", ratio(a.Bubble))
	}
	var parts []string
	for i, share := range idleShares(a.Idle) {
		parts = append(parts, idleParts[i]+" "+share)
	}
	line("of which", "%s", strings.Join(parts, ", "))
	fmt.Fprintln(out)
	rows = nil
	for _, o := range a.Others {
		flying := fmt.Sprint(o.InFlight)
		if o.Chunks > 1 {
			flying += " of a chunk"
		}
		rows = append(rows, []string{o.Schedule, duration(o.Step), ratio(o.Bubble), ratio(o.ToBound), flying, megabytes(o.Bytes)})
	}
	return record.Table(out, []string{"schedule", "step", "bubble ratio", "to bound", "in flight", "most bytes"}, rows)
}
