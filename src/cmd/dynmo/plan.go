package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/record"
	"dynmo/src/sim"
	"dynmo/src/train"
)

// whatIf is what commands that only compute are given.
type whatIf struct {
	sets           []string
	costs, network string
	json           bool
}

// flags adds the flags of a command that computes on costs.
func (w *whatIf) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&w.sets, "set", nil, "table.key=value, over what CONFIG says; may be given again")
	c.Flags().StringVar(&w.costs, "costs", "", "cost table of dynmo profile, or costs.jsonl of a run directory")
	c.Flags().StringVar(&w.network, "network", "", "TOML file that describes the network; without it [comm] of CONFIG holds between all ranks")
	c.Flags().BoolVar(&w.json, "json", false, "answer in JSON")
	if err := c.MarkFlagRequired("costs"); err != nil {
		panic(err)
	}
}

// read reads settings, costs and network. Errors are the user's.
func (w *whatIf) read(file string) (cost.Series, plan.Options, error) {
	fail := func(err error) (cost.Series, plan.Options, error) { return nil, plan.Options{}, usageError{err} }
	c, err := config.Load(file, w.sets)
	if err != nil {
		return fail(err)
	}
	o := plan.Options{Config: c, Fixed: train.FixedBytes(c), Network: sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes)}
	if w.network != "" {
		f, err := os.Open(w.network)
		if err != nil {
			return fail(fmt.Errorf("--network: %w", err))
		}
		defer f.Close()
		if o.Network, err = sim.ReadNetwork(w.network, f); err != nil {
			return fail(fmt.Errorf("--network: %w", err))
		}
	}
	f, err := os.Open(w.costs)
	if err != nil {
		return fail(fmt.Errorf("--costs: %w", err))
	}
	defer f.Close()
	series, err := cost.ReadSeries(w.costs, f, c.Layers())
	if err != nil {
		return fail(fmt.Errorf("--costs: %w", err))
	}
	return series, o, nil
}

// planCommand returns the command that plans a step.
func planCommand() *cobra.Command {
	var w whatIf
	var step int
	c := &cobra.Command{
		Use:   "plan CONFIG --costs FILE",
		Short: "Where layers should live and what a step will take: cuts, bytes, schedule, idle time by cause",
		Long: `Where layers should live and what a step will take, on measured costs. Nothing
is trained. Cuts are the exact partition, improved on the simulated step; with
balance.kind = uniform, param, regex or layout they are those.

Every time is simulated (clock=sim) on costs of the clock that the table names.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			series, o, err := w.read(args[0])
			if err != nil {
				return err
			}
			table, err := at(series, step)
			if err != nil {
				return usageError{err}
			}
			a, err := planned(table, o)
			if err != nil {
				return usageError{err}
			}
			if w.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(a)
			}
			return a.print(c.OutOrStdout())
		},
	}
	w.flags(c)
	c.Flags().IntVar(&step, "step", -1, "step whose costs to plan for; -1 is the last")
	return c
}

// at returns the costs of a step of a series, of the last step for -1.
func at(series cost.Series, step int) (cost.Table, error) {
	last := series[len(series)-1]
	if step == -1 {
		return last.Mean(), nil
	}
	for _, s := range series {
		if step >= s.Step && step < s.Step+max(1, s.Steps) {
			return s.Mean(), nil
		}
	}
	return cost.Table{}, fmt.Errorf("--step %d: costs are of steps %d to %d", step, series[0].Step, last.Step+max(1, last.Steps)-1)
}

// planAnswer is what the command says; times are in seconds.
type planAnswer struct {
	Clock      string              `json:"clock"` // sim
	Costs      string              `json:"costs_clock"`
	Schedule   string              `json:"schedule"`
	Cuts       partition.Partition `json:"cuts"`             // over virtual stages
	Layout     string              `json:"layout,omitempty"` // Megatron-LM's notation, where it can say it
	Stages     []planStage         `json:"stages"`
	Step       float64             `json:"step_seconds"`
	Bound      float64             `json:"lower_bound"`
	Bottleneck float64             `json:"bottleneck"`
	Optimum    float64             `json:"optimum"`
	Bubble     float64             `json:"bubble_ratio"`
	Busy       float64             `json:"busy_seconds"` // mean over the stages
	Idle       idleAnswer          `json:"idle_seconds"`
	Paper      float64             `json:"paper_bubble_ratio"` // the paper's equation (1)
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
	InFlight int     `json:"in_flight"` // most microbatches of a chunk on any stage
}

// planned plans a step.
func planned(t cost.Table, o plan.Options) (planAnswer, error) {
	p, err := plan.New(o.Config, o.Network, o.Fixed)
	if err != nil {
		return planAnswer{}, err
	}
	choose := p.First
	if o.Config.Balance.Moves() {
		choose = p.Cuts
	}
	cuts, err := choose(t)
	if err != nil {
		return planAnswer{}, err
	}
	best, err := p.At(t, cuts)
	if err != nil {
		return planAnswer{}, err
	}
	summary := best.Step.Summary
	a := planAnswer{
		Clock: "sim", Costs: t.Clock, Schedule: string(best.Schedule.Kind), Cuts: cuts,
		Step: summary.Makespan(), Bound: best.LowerBound, Bottleneck: best.Bottleneck, Optimum: best.Optimum,
		Bubble: summary.BubbleRatio(), Busy: mean(summary.Busy), Idle: idleAnswer(best.Idle),
		Paper: paperBubble(best, o),
	}
	if layout, err := train.Layout(o.Config, cuts); err == nil {
		a.Layout = layout
	}
	for stage := range p.Map.Stages {
		s := planStage{Layers: p.Map.Owners(cuts).Layers(stage), Bytes: best.Bytes[stage]}
		for chunk := range p.Map.Chunks {
			v := p.Map.Place(stage, chunk)
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
	for _, other := range plan.Others(t, o) {
		a.Others = append(a.Others, planOther{
			Schedule: string(other.Schedule.Kind), Step: other.Makespan(), Bubble: other.BubbleRatio(),
			ToBound: other.Makespan() / other.LowerBound, InFlight: slices.Max(other.Schedule.InFlight()),
		})
	}
	return a, nil
}

// print writes the answer for people.
func (a planAnswer) print(out io.Writer) error {
	header := []string{"stage", "layers", "forward", "backward-input", "backward-weight", "in flight", "bytes"}
	var rows [][]string
	for stage, s := range a.Stages {
		flying := strings.Trim(fmt.Sprint(s.InFlight), "[]")
		if s.Cap > 0 {
			flying += fmt.Sprintf(" (cap %d)", s.Cap)
		}
		rows = append(rows, []string{
			fmt.Sprint(stage), stretches(s.Layers), milliseconds(s.Forward), milliseconds(s.BackwardInput),
			milliseconds(s.BackwardWeight), flying, fmt.Sprintf("%.1f MB", float64(s.Bytes)/1e6),
		})
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	var b strings.Builder
	line := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "%-13s %s\n", name, fmt.Sprintf(format, values...))
	}
	fmt.Fprintln(&b)
	if a.Layout != "" {
		line("layout", "%s", a.Layout)
	}
	line("schedule", "%s", a.Schedule)
	line("step", "%s  (clock=sim, on costs of clock=%s)", milliseconds(a.Step), a.Costs)
	line("lower bound", "%s  (the step is %.3f of it)", milliseconds(a.Bound), a.Step/a.Bound)
	line("bottleneck", "%s per microbatch; optimum %s", milliseconds(a.Bottleneck), milliseconds(a.Optimum))
	line("bubble ratio", "%.3f  (paper's equation (1), equal stages: %.3f)", a.Bubble, a.Paper)
	line("a stage's step", "%s", a.Idle.line(a.Busy))
	fmt.Fprintln(&b)
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	rows = nil
	for _, o := range a.Others {
		rows = append(rows, []string{o.Schedule, milliseconds(o.Step), fmt.Sprintf("%.3f", o.Bubble), fmt.Sprintf("%.3f", o.ToBound), fmt.Sprint(o.InFlight)})
	}
	return record.Table(out, []string{"schedule", "step", "bubble ratio", "to bound", "in flight"}, rows)
}
