package search

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// idleByCause says why the stages of a step waited. spans has the instructions of every stage
// of one replica, measured or simulated. took is perMicrobatch of spans. makespan is that of
// the slowest replica. The step is simulated again, each time without one more cause:
//
//	inherent       the same kind of schedule with equally loaded stages and the same totals
//	imbalance      the simulation without messages, less inherent and memory
//	memory         what caps cost: the simulation, less that of a schedule without caps
//	communication  the makespan of this replica, less the simulation
//
// Each is a mean over the stages in seconds. With the mean busy time they sum to makespan. The
// seconds by which the slowest replica is slower count as imbalance, and the dispatch overhead
// of the host as inherent. caps limited a list schedule by stage; nil: nothing did.
func (s *Step) idleByCause(order schedule.Schedule, spans [][]trace.Span, took [][]cost.Stage, dispatch float64, caps []int, makespan float64) trace.Idle {
	replay := sim.Run(sim.Step{Schedule: order, PerMicrobatch: took, Dispatch: dispatch}).Makespan()
	sum := cost.Stage{} // of all virtual stages, for the mean microbatch
	mean := means(took)
	for _, c := range mean {
		sum = sum.Plus(c)
	}
	equal := slices.Repeat([]cost.Stage{sum.Scale(1 / float64(len(took)))}, len(took))
	ideal := sim.Step{Schedule: order, Costs: equal, Dispatch: dispatch}
	if s.Adapts() {
		ideal.Schedule = schedule.List(s.options(ideal, nil))
	}
	idle := trace.Idle{Busy: sum.Seconds() * float64(order.Microbatches) / float64(order.Map.Stages)}
	idle.Inherent = sim.Run(ideal).Makespan() - idle.Busy
	if caps != nil {
		step := sim.Step{Schedule: order, Costs: mean, Dispatch: dispatch}
		capped := sim.Run(step).Makespan()
		step.Schedule = schedule.List(s.options(step, nil))
		idle.Memory = max(0, capped-sim.Run(step).Makespan())
	}
	own := trace.Step{Stages: spans}.Summary().Makespan()
	idle.Imbalance = replay - idle.Busy - idle.Inherent - idle.Memory + max(0, makespan-own)
	idle.Communication = own - replay
	return idle
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
			v, part := s.Map.Place(stage, sp.Chunk), cost.Stage{}
			switch seconds := sp.Seconds(); sp.Op {
			case trace.F:
				part.Forward = seconds
			case trace.I:
				part.Input = seconds
			case trace.W:
				part.Weight = seconds
			case trace.B:
				weights := 0.0 // part of the seconds
				if both := costs[v].Input + costs[v].Weight; both > 0 {
					weights = costs[v].Weight / both
				}
				part.Input, part.Weight = (1-weights)*seconds, weights*seconds
			}
			took[v][sp.Microbatch] = took[v][sp.Microbatch].Plus(part)
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
