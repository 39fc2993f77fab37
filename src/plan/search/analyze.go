package search

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/sim"
)

// Analyze analyses a measured step in the layout in which it ran. Loads are seconds, even if the
// balancer balances parameters. Optimum and Headroom compare with one chunk on each stage. A layout of
// several chunks may reach a smaller bottleneck than that; Optimum is then Bottleneck. m.Dispatch and
// m.Instructions must be known.
func (p *Problem) Analyze(m profile.Measurement, l layout.Layout) (plan.Analysis, error) {
	s, peaks := p.Step(m.Table, l), p.peaks(l)
	chosen, _ := s.chosen(l, l.Schedule.Peaks)
	t := s.effective(m.Table, chosen)
	costs := s.stageCosts(t, l.Cuts)
	loads := l.Loads(costs)
	a := plan.Analysis{
		Bottleneck: slices.Max(loads), Bytes: totals(s.memory(l, peaks)),
		Predicted: s.Makespan(l), Took: perMicrobatch(l.Schedule, m.Instructions, costs),
	}
	line := balance.New(s.exchanging(s.Costs).Fitted(s.Mesh.Stages), balance.ByTime, s.Mesh.Stages, nil, 0)
	line.Slow = s.scaleSlowness(line.Slow, partition.Line(s.Mesh.Stages))
	optimum, err := balance.Partition(line)
	if err != nil {
		return a, fmt.Errorf("balance: %w", err)
	}
	a.Optimum = min(optimum.Bottleneck, a.Bottleneck)
	a.Headroom, err = balance.Headroom(line, balance.Result{StageSeconds: loads, Bottleneck: a.Bottleneck}, l.Schedule.Microbatches)
	if err != nil {
		return a, fmt.Errorf("balance: %w", err)
	}
	a.LowerBound = sim.LowerBound(l.Map(), costs, l.Schedule.Microbatches, s.capsOver(t, l))
	a.Idle = s.idleByCause(l.Schedule, m.Instructions, a.Took, t.Dispatch, s.caps(t, l), m.Summary.Makespan())
	return a, nil
}

// capsOver returns the caps on microbatches in flight, at least those of a layout's schedule: the base
// may hold more than lists are let.
func (s *Step) capsOver(t cost.Table, l layout.Layout) []int {
	caps := s.caps(t, l)
	if caps == nil {
		return nil
	}
	inFlight := l.Schedule.InFlight()
	for stage := range caps {
		caps[stage] = max(caps[stage], inFlight[stage])
	}
	return caps
}

// Plan is a simulated step: its layout and its predicted times and bytes.
type Plan struct {
	layout.Layout
	plan.Analysis
	Memory   []cost.Memory // by stage: Analysis.Bytes by purpose
	Costs    []cost.Stage  // by virtual stage: seconds of the mean microbatch on the slowest replica's rank
	InFlight []int         // by virtual stage: most microbatches in flight in the schedule
	Caps     []int         // by stage: most microbatches in flight that memory and settings allow; nil: no limit
	Messages []int64       // by virtual stage: bytes that it sends on for a microbatch
	Step     sim.Result    // of the slowest replica
	Seconds  float64       // of the whole step, with the gradient sum over replicas
	Exposed  float64       // seconds of the gradient sum that no work hides
	TwiceGap float64       // the layers that recompute need at most 1+TwiceGap times the seconds of the best choice of such layers
}

// Simulate simulates one step in a layout. costs are those of a phase: of steps with one model. number
// is the step's number in the run, from 0; random delays of messages depend on it. Bottleneck and
// Optimum are those of the mean microbatch. LowerBound and the times are those of the actual ones.
func (p *Problem) Simulate(costs cost.Phase, l layout.Layout, number int) (Plan, error) {
	key, isKept := p.key(l)
	if p.Memo == nil || !isKept || costs.Factors != nil {
		return p.simulate(costs, l, number)
	}
	if p.Network.Delay.Most > 1 {
		key = fmt.Sprint(key, number)
	}
	known := p.Memo.find(costs.Table).plans
	plan, ok := known[key]
	if !ok {
		var err error
		if plan, err = p.simulate(costs, l, number); err != nil {
			return plan, err
		}
		known[key] = plan
	}
	plan.Layout = l
	return plan, nil
}

// simulate is Simulate of a step for which no plan is kept.
func (p *Problem) simulate(costs cost.Phase, l layout.Layout, number int) (Plan, error) {
	plain := costs.Mean()
	s, free, peaks := p.Step(plain, l), l, p.peaks(l)
	free.Twice = nil
	_, gap := s.chosen(free, l.Schedule.Peaks)
	chosen, _ := s.chosen(l, l.Schedule.Peaks)
	costs.Table = s.effective(costs.Table, chosen)
	s = p.Step(costs.Mean(), l)
	a := Plan{
		TwiceGap: gap,
		Layout:   l, Costs: s.stageCosts(s.Costs, l.Cuts), Messages: Messages(s.Costs, l.Cuts),
		Caps: s.capsOver(s.Costs, l), Memory: s.memory(l, peaks),
	}
	for _, peak := range peaks {
		a.InFlight = append(a.InFlight, peak.InFlight)
	}
	step := sim.Step{
		Schedule: l.Schedule, Costs: costs.Stages(l.Cuts, l.Map()), PerMicrobatch: costs.PerMicrobatch(l.Cuts, l.Map(), l.Schedule.Microbatches),
		Bytes: a.Messages, Network: p.Network, Dispatch: costs.Dispatch, Mesh: l.Mesh, Ranks: l.Ranks, Rounds: s.rounds(), Number: number, Spans: true,
	}
	all := sim.Replicas(step, l.Cuts, costs.Layers)
	a.Seconds, a.Exposed = all.Seconds, all.Exposed()
	a.Step = slices.MaxFunc(all.Replicas, func(x, y sim.Result) int { return cmp.Compare(x.Makespan(), y.Makespan()) })
	var err error
	m := profile.Measurement{Measurement: cost.Measurement{Table: plain}, Summary: a.Step.Summary, Instructions: a.Step.Spans}
	if a.Analysis, err = p.Analyze(m, l); err != nil {
		return Plan{}, err
	}
	a.LowerBound = 0
	for step.Replica = range all.Replicas {
		if step.Replica == 0 || p.Network.Slow != nil { // else all replicas have one bound
			a.LowerBound = max(a.LowerBound, step.LowerBound(a.Caps))
		}
	}
	return a, nil
}
