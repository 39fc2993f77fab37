package plan

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// Idle says why the stages of a step waited. spans are what every stage did, an
// instruction each, measured or simulated; makespan is the step's, of the
// slowest replica. The step is replayed on what its instructions took, each
// time without one more cause:
//
//	inherent       the schedule of the same kind, all stages loaded equally, with the same totals
//	imbalance      the replay without messages, less inherent and memory
//	memory         the replay, less one of the schedule that were taken if memory held any number in flight
//	communication  the makespan, less the replay
//
// Each is a mean over the stages, in seconds; with the mean busy time they sum
// to the makespan. caps is what limited the schedule, by stage; nil: nothing.
func (p *Planner) Idle(s schedule.Schedule, spans [][]trace.Span, caps []int, makespan float64) trace.Idle {
	took := perMicrobatch(s, spans)
	free := sim.Step{Schedule: s, PerMicrobatch: took}
	replay := sim.Run(free).Makespan()
	busy, mean := totals(took)
	equal := slices.Repeat([]cost.Stage{mean}, len(took))
	ideal := sim.Step{Schedule: s, Costs: equal}
	if p.Kind == schedule.KindList || p.Kind == schedule.KindAuto {
		ideal.Schedule = p.scheduleFor(ideal, nil)
	}
	idle := trace.Idle{Inherent: sim.Run(ideal).Makespan() - busy/float64(s.Map.Stages)}
	if caps != nil {
		uncapped := sim.Step{Schedule: s, Costs: means(took)}
		best := p.scheduleFor(uncapped, nil)
		capped := sim.Run(uncapped).Makespan()
		uncapped.Schedule = best
		idle.Memory = max(0, capped-sim.Run(uncapped).Makespan())
	}
	idle.Imbalance = replay - busy/float64(s.Map.Stages) - idle.Inherent - idle.Memory
	idle.Communication = makespan - replay
	return idle
}

// perMicrobatch returns what every virtual stage took for every microbatch.
// What an undivided backward took counts as backward for inputs.
func perMicrobatch(s schedule.Schedule, spans [][]trace.Span) [][]cost.Stage {
	took := make([][]cost.Stage, s.Map.Virtual())
	for v := range took {
		took[v] = make([]cost.Stage, s.Microbatches)
	}
	for stage, list := range spans {
		for _, sp := range list {
			at := &took[s.Map.Place(stage, sp.Chunk)][sp.Microbatch%s.Microbatches]
			switch seconds := sp.End - sp.Start; sp.Kind {
			case trace.F:
				at.Forward += seconds
			case trace.I, trace.B:
				at.Input += seconds
			case trace.W:
				at.Weight += seconds
			}
		}
	}
	return took
}

// means returns what every virtual stage took for a microbatch on average.
func means(took [][]cost.Stage) []cost.Stage {
	list := make([]cost.Stage, len(took))
	for v, row := range took {
		for _, c := range row {
			list[v].Forward += c.Forward
			list[v].Input += c.Input
			list[v].Weight += c.Weight
		}
		list[v] = list[v].Scale(1 / float64(len(row)))
	}
	return list
}

// totals returns all seconds together, and what one virtual stage would take
// for one microbatch if all took the same.
func totals(took [][]cost.Stage) (busy float64, mean cost.Stage) {
	for _, c := range means(took) {
		mean.Forward += c.Forward
		mean.Input += c.Input
		mean.Weight += c.Weight
	}
	busy = mean.Seconds() * float64(len(took[0]))
	return busy, mean.Scale(1 / float64(len(took)))
}
