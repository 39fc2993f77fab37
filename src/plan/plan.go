package plan

import (
	"cmp"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// Plan is a step: who holds what, in which order it is worked on, and what
// that is predicted to take.
type Plan struct {
	Cuts       partition.Partition // over virtual stages
	Schedule   schedule.Schedule
	Costs      []cost.Stage // by virtual stage, for one microbatch, on its rank
	InFlight   []int        // by virtual stage: most microbatches between F and W
	Caps       []int        // by stage: how many memory and settings allow; nil: any number
	Bytes      []int64      // by stage
	Messages   []int64      // by virtual stage: bytes that it sends on for a microbatch
	Step       sim.Result   // of the slowest replica
	Seconds    float64      // of the whole step, with the gradient sum over replicas
	Exposed    float64      // of it: gradient sum that no work hides
	Idle       trace.Idle
	LowerBound float64 // no schedule of these cuts takes less, under Caps
	Bottleneck float64 // seconds per microbatch of the most loaded stage
	Optimum    float64 // the smallest possible bottleneck of one chunk on each stage, whatever the memory
}

// At returns the plan of given cuts for the first step of a stretch. The lower
// bound and the bottlenecks are those of its mean microbatch.
func (p *Planner) At(costs cost.Phase, cuts partition.Partition) (Plan, error) {
	t := costs.Mean()
	s := p.Schedule(t, cuts)
	a := Plan{
		Cuts: cuts, Schedule: s, Costs: p.placed(t, cuts), Messages: messages(t, cuts), InFlight: s.InFlight(), Caps: p.Caps(t, cuts),
	}
	for stage := range a.Caps {
		a.Caps[stage] = max(a.Caps[stage], a.InFlight[stage]) // the base may hold more than lists are let
	}
	a.Bytes = p.Bytes(t, cuts, s.Peaks())
	p.whole(&a, costs, costs.Step)
	a.LowerBound = p.bound(t, cuts, a.Caps)
	a.Bottleneck = slices.Max(Loads(p.Map, a.Costs))
	optimum, err := balance.Partition(p.Line(t))
	if err != nil {
		return Plan{}, err
	}
	a.Optimum = min(optimum.Bottleneck, a.Bottleneck)
	return a, nil
}

// whole simulates step number of a stretch on all replicas, as the plan has it.
func (p *Planner) whole(a *Plan, costs cost.Phase, number int) {
	all := sim.Replicas(sim.Step{
		Schedule: a.Schedule, Costs: costs.Stages(a.Cuts, p.Map), PerMicrobatch: costs.PerMicrobatch(a.Cuts, p.Map, p.Microbatches),
		Bytes: a.Messages, Network: p.Network, Gap: costs.Gap, Mesh: p.Mesh, Number: number, Spans: true,
	}, a.Cuts, costs.Layers)
	a.Seconds, a.Exposed = all.Seconds, all.Exposed()
	a.Step = slices.MaxFunc(all.Replicas, func(x, y sim.Result) int { return cmp.Compare(x.Makespan(), y.Makespan()) })
	took := PerMicrobatch(a.Schedule, a.Step.Spans, a.Costs)
	a.Idle = p.Idle(a.Schedule, a.Step.Spans, took, costs.Gap, a.Caps, a.Step.Makespan())
}

// kinds are the schedules that Others tries.
var kinds = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved,
	schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV, schedule.KindList,
}

// Others returns what every kind of schedule makes of the costs, each at its own
// best cuts. Kinds that stages, microbatches, layers or memory do not allow are
// left out.
func Others(t cost.Table, o Options) []Plan {
	var list []Plan
	for _, kind := range kinds {
		c := o.Config
		c.Schedule.Kind = string(kind)
		if c.Validate() != nil {
			continue
		}
		p, err := New(c, o.Network, o.Fixed)
		if err != nil {
			continue
		}
		cuts, err := p.Cuts(t)
		if err != nil {
			continue
		}
		if other, err := p.At(cost.Phase{Table: t}, cuts); err == nil {
			list = append(list, other)
		}
	}
	return list
}
