package plan

import (
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
	Step       sim.Result
	Idle       trace.Idle
	LowerBound float64 // no schedule of these cuts takes less, under Caps
	Bottleneck float64 // seconds per microbatch of the most loaded stage
	Optimum    float64 // the smallest possible bottleneck of one chunk on each stage, whatever the memory
}

// At returns the plan of given cuts for the first step of a stretch. The lower
// bound and the bottlenecks are those of its mean microbatch.
func (p *Planner) At(costs cost.Stretch, cuts partition.Partition) (Plan, error) {
	t := costs.Mean()
	s := p.Schedule(t, cuts)
	step := p.Step(costs.Table, cuts, s)
	step.PerMicrobatch = costs.PerMicrobatch(cuts, p.Map, p.Microbatches)
	step.Number, step.Spans = costs.Step, true
	a := Plan{
		Cuts: cuts, Schedule: s, Costs: p.placed(t, cuts), Messages: step.Bytes, InFlight: s.InFlight(), Caps: p.Caps(t, cuts),
		Step: sim.Run(step),
	}
	a.Bytes = p.Bytes(t, cuts, s.Peaks())
	a.Idle = p.Idle(s, a.Step.Spans, a.Caps, a.Step.Makespan())
	a.LowerBound = sim.LowerBound(p.Map, a.Costs, p.Microbatches, a.Caps)
	loads := make([]float64, p.Map.Stages)
	for v, c := range a.Costs {
		loads[p.Map.Stage(v)] += c.Seconds()
	}
	a.Bottleneck = slices.Max(loads)
	line := balance.New(t, balance.ByTime, p.Map.Stages, nil, 0)
	line.Slow = p.slowness(line.Slow, partition.Line(p.Map.Stages))
	optimum, err := balance.Partition(line)
	if err != nil {
		return Plan{}, err
	}
	a.Optimum = min(optimum.Bottleneck, a.Bottleneck)
	return a, nil
}

// Other is a plan in another kind of schedule.
type Other struct {
	Schedule schedule.Schedule
	trace.Summary
	LowerBound float64 // of its own cuts
	Bytes      int64   // of the stage that needs most
}

// kinds are the schedules that Others tries.
var kinds = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved,
	schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV, schedule.KindList,
}

// Others returns what every kind of schedule makes of the costs, each at its own
// best cuts. Kinds that stages, microbatches, layers or memory do not allow are
// left out.
func Others(t cost.Table, o Options) []Other {
	var list []Other
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
		s := p.Schedule(t, cuts)
		list = append(list, Other{
			Schedule: s, Summary: sim.Run(p.Step(t, cuts, s)).Summary,
			LowerBound: sim.LowerBound(p.Map, p.placed(t, cuts), p.Microbatches, p.Caps(t, cuts)),
			Bytes:      slices.Max(p.Bytes(t, cuts, s.Peaks())),
		})
	}
	return list
}
