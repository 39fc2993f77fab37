package search

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/profile"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// Analysis is what a step's measurement says of its layout.
type Analysis struct {
	Bottleneck float64        // seconds per microbatch of the most loaded stage
	Optimum    float64        // the smallest possible bottleneck of one chunk on each stage, whatever the memory
	Headroom   float64        // how many times faster other cuts could be at most (see balance.Headroom)
	Predicted  float64        // makespan that simulating the schedule on the costs gives
	Idle       trace.Idle     // why stages waited
	Bytes      []int64        // by stage: what layers and buffers account for
	Took       [][]cost.Stage // by virtual stage and microbatch, from the instructions
}

// Analyze returns what a measurement says of the layout in which it was made. It always goes
// by time, whatever the balancer balances, and compares with the best cuts of one chunk on
// each stage. m.Dispatch and m.Instructions must be known.
func (p *Planner) Analyze(m profile.Measurement, l layout.Layout) (Analysis, error) {
	p = p.onRanksOf(l).selectMap(l.Map()).keepChoice(l)
	t := p.effective(m.Table, p.choose(m.Table, l.Cuts, l.Schedule.Peaks))
	costs := p.stageCosts(t, l.Cuts)
	loads := l.Loads(costs)
	a := Analysis{
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
	Analysis
	Memory     []cost.Memory // by stage: Bytes by purpose
	Costs      []cost.Stage  // by virtual stage, for one microbatch, on its rank
	InFlight   []int         // by virtual stage: most microbatches between F and W
	Caps       []int         // by stage: how many memory and settings allow; nil: any number
	Messages   []int64       // by virtual stage: bytes that it sends on for a microbatch
	Step       sim.Result    // of the slowest replica
	Seconds    float64       // of the whole step, with the gradient sum over replicas
	Exposed    float64       // seconds of the gradient sum that no work hides
	LowerBound float64       // seconds that any schedule of these cuts takes under Caps
	TwiceGap   float64       // share by which what layers compute twice may take longer than the best choice for these cuts; 0: it is the best
}

// Simulate simulates step number of a phase in a layout. The bottlenecks are those of the
// mean microbatch. The lower bound holds for the microbatches as they are.
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

// SimulateCuts simulates a step at some cuts with the schedule that suits the costs.
func (p *Planner) SimulateCuts(costs cost.Phase, cuts []int) (Plan, error) {
	return p.Simulate(costs, p.Layout(costs.Mean(), cuts), costs.Step)
}
