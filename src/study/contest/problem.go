// Package contest compares auto with others: with the heuristics of the papers on
// zero-bubble schedules at the same caps, and with the optimum of small steps. What
// comes in is how many of the drawn steps to try; what goes out is makespans. It is
// pure.
package contest

import (
	"fmt"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Problem is a step of microbatches that are alike.
type Problem struct {
	Name         string
	Costs        []cost.Stage // by stage, for one microbatch of all that lies there
	Message      float64      // seconds from a stage to the one beside it
	Microbatches int
	InFlight     int  // most microbatches of a stage between F and W; 0: no cap
	Vee          bool // whether a rival may lay half of a stage's costs on the way back, in a V
}

// String tells a problem from all others.
func (p Problem) String() string {
	limit := "no cap"
	if p.InFlight > 0 {
		limit = fmt.Sprintf("cap %d", p.InFlight)
	}
	if p.Vee {
		limit += ", V"
	}
	return fmt.Sprintf("%s, P=%d, M=%d, %s, messages %g", p.Name, len(p.Costs), p.Microbatches, limit, p.Message)
}

// limit returns the most microbatches of a stage between F and W.
func (p Problem) limit() int {
	if p.InFlight == 0 {
		return p.Microbatches
	}
	return min(p.InFlight, p.Microbatches)
}

// over returns the costs by virtual stage: what lies on a stage is cut into chunks
// that cost the same.
func (p Problem) over(m partition.Map) []cost.Stage {
	costs := make([]cost.Stage, m.Virtual())
	for v := range costs {
		costs[v] = p.Costs[m.Stage(v)].Scale(1 / float64(m.Chunks))
	}
	return costs
}

// seconds simulates a schedule.
func (p Problem) seconds(s schedule.Schedule) float64 {
	step := sim.Step{Schedule: s, Costs: p.over(s.Map)}
	if p.Message > 0 {
		step.Bytes, step.Network = make([]int64, s.Map.Virtual()), sim.Uniform(p.Message, 0)
	}
	return sim.Run(step).Makespan()
}

// fits reports whether a schedule keeps to the cap, which counts chunks of a stage
// for the part of it that they are.
func (p Problem) fits(s schedule.Schedule) bool {
	return s.Check(func(int) int { return s.Map.Chunks * p.limit() }) == nil
}

// auto returns the makespan of the schedule that auto takes: of one chunk on each
// stage, or of two in a V where rivals may have those, whichever is shorter.
func (p Problem) auto() float64 {
	_, seconds := search.Auto(p.options(partition.Line(len(p.Costs))), p.seconds)
	if p.Vee {
		_, folded := search.Auto(p.options(inVee(len(p.Costs))), p.seconds)
		seconds = min(seconds, folded)
	}
	return seconds
}

// inVee returns the map of two chunks on each stage in a V.
func inVee(stages int) partition.Map { return partition.Map{Stages: stages, Chunks: 2, Vee: true} }

// options returns what auto makes schedules for.
func (p Problem) options(m partition.Map) schedule.ListOptions {
	o := schedule.ListOptions{Map: m, Costs: p.over(m), Microbatches: p.Microbatches}
	if p.Message > 0 {
		o.Message = slices.Repeat([]float64{p.Message}, m.Virtual()-1)
	}
	if p.InFlight > 0 {
		o.InFlight = slices.Repeat([]int{m.Chunks * p.limit()}, m.Stages)
	}
	return o
}
