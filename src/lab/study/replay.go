package study

import (
	"dynmo/src/cost"
	"dynmo/src/lab/verdict"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/sim"
)

// Replayed is how well the simulator knows a phase that really ran, or repeats one that was simulated.
type Replayed struct {
	Step      int     `json:"step"`
	Steps     int     `json:"steps"`
	Simulated bool    `json:"simulated,omitempty"` // the phase never ran: Measured is the makespan that its simulation recorded
	Measured  float64 `json:"measured"`            // seconds, makespan
	Predicted float64 `json:"predicted"`
	Error     float64 `json:"error"` // Predicted / Measured - 1
	// Ahead is what the costs of the phase before predict for this one, where the
	// layout changed in between and the model did not; else 0. The balancer knew no
	// more.
	Ahead float64 `json:"ahead,omitempty"`
}

// Replay simulates the phases that ran as they ran, on their own costs: the same
// layout and network, whatever is asked of the series besides. Every microbatch
// takes its own measured share (record.Course.Scale). Phases that were not run are
// left out.
func Replay(series record.Series) []Replayed {
	var list []Replayed
	for i, p := range series {
		if p.Run == nil {
			continue
		}
		r := Replayed{Step: p.Step, Steps: p.Steps, Simulated: p.IsSimulated(), Measured: p.Run.Makespan, Predicted: makespan(*p.Run, p.Measured())}
		r.Error = r.Predicted/r.Measured - 1
		if i > 0 && p.Change == "" && series[i-1].Run != nil && !series[i-1].Run.Layout.Equal(p.Run.Layout) {
			r.Ahead = makespan(*p.Run, ahead(series[i-1], p))
		}
		list = append(list, r)
	}
	return list
}

// ahead returns the measured costs of a phase in the microbatches of the next one, which
// a packing between them may have made larger.
func ahead(p, next record.Phase) cost.Phase {
	if next.Run.Resumed {
		return p.Measured()
	}
	return p.Measured().Regroup(p.Run.Layout.Schedule.Microbatches, next.Run.Layout.Schedule.Microbatches)
}

// makespan returns the simulated seconds of a step that ran, on some costs.
func makespan(r record.Course, costs cost.Phase) float64 {
	cuts, order := r.Layout.Cuts, r.Layout.Schedule
	return sim.Run(sim.Step{
		Schedule: order, Costs: costs.Stages(cuts, order.Map), PerMicrobatch: costs.PerMicrobatch(cuts, order.Map, order.Microbatches),
		Bytes: search.Messages(costs.Table, cuts), Network: verdict.Network(&r), Dispatch: costs.Dispatch, Mesh: r.Layout.Mesh, Ranks: r.Layout.Ranks, Number: r.Step,
	}).Makespan()
}
