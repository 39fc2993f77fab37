package search

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/sim"
)

// Analyze analyses a measured step in the layout in which it ran. Loads are seconds, even if the
// balancer balances parameters. Optimum and Headroom compare with one chunk on each stage. A layout of
// several chunks may reach a smaller bottleneck than that; Optimum is then Bottleneck. m.Dispatch and
// m.Instructions must be known.
func (p *Planner) Analyze(m profile.Measurement, l layout.Layout) (plan.Analysis, error) {
	p = p.onRanksOf(l).selectMap(l.Map()).keepChoice(l)
	t := p.effective(m.Table, p.choose(m.Table, l.Cuts, l.Schedule.Peaks))
	costs := p.stageCosts(t, l.Cuts)
	loads := l.Loads(costs)
	a := plan.Analysis{
		Bottleneck: slices.Max(loads), Bytes: p.Bytes(t, l.Cuts, l.Schedule.Peaks()),
		Predicted: p.Makespan(m.Table, l), Took: perMicrobatch(l.Schedule, m.Instructions, costs),
	}
	line := p.lineProblem(m.Table)
	optimum, err := balance.Partition(line)
	if err != nil {
		return a, fmt.Errorf("balance: %w", err)
	}
	a.Optimum = min(optimum.Bottleneck, a.Bottleneck)
	a.Headroom, err = balance.Headroom(line, balance.Result{StageSeconds: loads, Bottleneck: a.Bottleneck}, l.Schedule.Microbatches)
	if err != nil {
		return a, fmt.Errorf("balance: %w", err)
	}
	a.Idle = p.idleByCause(l.Schedule, m.Instructions, a.Took, t.Dispatch, p.caps(t, l.Cuts), m.Summary.Makespan())
	return a, nil
}

// Plan is a simulated step: its layout and its predicted times and bytes.
type Plan struct {
	layout.Layout
	plan.Analysis
	Memory     []cost.Memory // by stage: Analysis.Bytes by purpose
	Costs      []cost.Stage  // by virtual stage: seconds of the mean microbatch on the slowest replica's rank
	InFlight   []int         // by virtual stage: most microbatches in flight in the schedule
	Caps       []int         // by stage: most microbatches in flight that memory and settings allow; nil: no limit
	Messages   []int64       // by virtual stage: bytes that it sends on for a microbatch
	Step       sim.Result    // of the slowest replica
	Seconds    float64       // of the whole step, with the gradient sum over replicas
	Exposed    float64       // seconds of the gradient sum that no work hides
	LowerBound float64       // seconds that every schedule of these cuts takes at least, under Caps
	TwiceGap   float64       // the layers that recompute need at most 1+TwiceGap times the seconds of the best choice of such layers
}

// Simulate simulates one step in a layout. costs are those of a phase: of steps with one model. number
// is the step's number in the run, from 0; random delays of messages depend on it. Bottleneck and
// Optimum are those of the mean microbatch. LowerBound and the times are those of the actual ones.
func (p *Planner) Simulate(costs cost.Phase, l layout.Layout, number int) (Plan, error) {
	p = p.onRanksOf(l).selectMap(l.Map())
	plain := costs.Mean()
	_, gap := p.chooseWithin(plain, l.Cuts, l.Schedule.Peaks)
	p = p.keepChoice(l)
	costs.Table = p.effective(costs.Table, p.choose(plain, l.Cuts, l.Schedule.Peaks))
	t := costs.Mean()
	a := Plan{
		TwiceGap: gap,
		Layout:   l, Costs: p.stageCosts(t, l.Cuts), Messages: Messages(t, l.Cuts), InFlight: l.Schedule.InFlight(), Caps: p.caps(t, l.Cuts),
		Memory: p.Memory(t, l.Cuts, l.Schedule.Peaks()),
	}
	for stage := range a.Caps {
		a.Caps[stage] = max(a.Caps[stage], a.InFlight[stage]) // the base may hold more than lists are let
	}
	step := sim.Step{
		Schedule: l.Schedule, Costs: costs.Stages(l.Cuts, l.Map()), PerMicrobatch: costs.PerMicrobatch(l.Cuts, l.Map(), l.Schedule.Microbatches),
		Bytes: a.Messages, Network: p.Network, Dispatch: costs.Dispatch, Mesh: l.Mesh, Ranks: l.Ranks, Sums: p.Sums(), Number: number, Spans: true,
	}
	all := sim.Replicas(step, l.Cuts, costs.Layers)
	a.Seconds, a.Exposed = all.Seconds, all.Exposed()
	a.Step = slices.MaxFunc(all.Replicas, func(x, y sim.Result) int { return cmp.Compare(x.Makespan(), y.Makespan()) })
	var err error
	m := profile.Measurement{Measurement: cost.Measurement{Table: plain}, Summary: a.Step.Summary, Instructions: a.Step.Spans}
	if a.Analysis, err = p.Analyze(m, l); err != nil {
		return Plan{}, err
	}
	for step.Replica = range all.Replicas {
		a.LowerBound = max(a.LowerBound, step.LowerBound(a.Caps))
	}
	return a, nil
}

// SimulateCuts is Simulate of the first step of a phase, in the layout that Layout returns for the cuts.
func (p *Planner) SimulateCuts(costs cost.Phase, cuts []int) (Plan, error) {
	return p.Simulate(costs, p.Layout(costs.Mean(), cuts), costs.Step)
}
