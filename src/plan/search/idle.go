package search

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// idleByCause says why the stages of a step waited. spans are what every stage did, an
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
// to the makespan. took is perMicrobatch of the spans, which are of one replica,
// from the start of the work for its first microbatch; by how much the slowest
// takes longer counts as imbalance. dispatch is what the host takes between
// two instructions, which is inherent. caps is what limited a list schedule, by
// stage; nil: nothing, as in kinds that promise what they hold. Where the
// schedule was made for costs, that of equal stages and that without the cap are
// lists.
func (p *Planner) idleByCause(s schedule.Schedule, spans [][]trace.Span, took [][]cost.Stage, dispatch float64, caps []int, makespan float64) trace.Idle {
	replay := sim.Run(sim.Step{Schedule: s, PerMicrobatch: took, Dispatch: dispatch}).Makespan()
	busy, mean := totals(took)
	equal := slices.Repeat([]cost.Stage{mean}, len(took))
	ideal := sim.Step{Schedule: s, Costs: equal, Dispatch: dispatch}
	if p.Adapts() {
		ideal.Schedule = schedule.List(p.options(ideal, nil))
	}
	idle := trace.Idle{Busy: busy / float64(s.Map.Stages)}
	idle.Inherent = sim.Run(ideal).Makespan() - idle.Busy
	if caps != nil {
		mean := sim.Step{Schedule: s, Costs: means(took), Dispatch: dispatch}
		capped := sim.Run(mean).Makespan()
		mean.Schedule = schedule.List(p.options(mean, nil))
		idle.Memory = max(0, capped-sim.Run(mean).Makespan())
	}
	own := extent(spans)
	idle.Imbalance = replay - idle.Busy - idle.Inherent - idle.Memory + max(0, makespan-own)
	idle.Communication = own - replay
	return idle
}

// extent returns the seconds from the first start to the last end of the
// schedule's spans.
func extent(spans [][]trace.Span) float64 {
	return trace.Step{Stages: spans}.Summary().Makespan()
}

// perMicrobatch returns what every virtual stage took for every microbatch.
// An undivided backward is divided as its stage's costs are.
func perMicrobatch(s schedule.Schedule, spans [][]trace.Span, costs []cost.Stage) [][]cost.Stage {
	took := make([][]cost.Stage, s.Map.Virtual())
	for v := range took {
		took[v] = make([]cost.Stage, s.Microbatches)
	}
	for stage, list := range spans {
		for _, sp := range list {
			if !sp.Op.Pipeline() {
				continue
			}
			v := s.Map.Place(stage, sp.Chunk)
			sum := &took[v][sp.Microbatch]
			switch seconds := sp.Seconds(); sp.Op {
			case trace.F:
				sum.Forward += seconds
			case trace.I:
				sum.Input += seconds
			case trace.W:
				sum.Weight += seconds
			case trace.B:
				weights := 0.0 // part of the seconds
				if both := costs[v].Input + costs[v].Weight; both > 0 {
					weights = costs[v].Weight / both
				}
				sum.Input += (1 - weights) * seconds
				sum.Weight += weights * seconds
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
			list[v] = list[v].Plus(c)
		}
		list[v] = list[v].Scale(1 / float64(len(row)))
	}
	return list
}

// totals returns all seconds together, and what one virtual stage would take
// for one microbatch if all took the same.
func totals(took [][]cost.Stage) (busy float64, mean cost.Stage) {
	for _, c := range means(took) {
		mean = mean.Plus(c)
	}
	busy = mean.Seconds() * float64(len(took[0]))
	return busy, mean.Scale(1 / float64(len(took)))
}
