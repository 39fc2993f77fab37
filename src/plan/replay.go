package plan

import (
	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/profile"
	"dynmo/src/sim"
)

// Replayed is how well the simulator knows a stretch that really ran.
type Replayed struct {
	Step, Steps         int
	Measured, Predicted float64 // seconds, makespan
	// Ahead is what the costs of the stretch before predict for this one, where
	// the layout changed in between and the model did not; else 0. The balancer
	// knew no more.
	Ahead float64
}

// Error returns predicted / measured - 1.
func (r Replayed) Error() float64 { return r.Predicted/r.Measured - 1 }

// Replay simulates the stretches that ran as they ran, on their own costs: the
// same layout, order of work and network, whatever is asked of the series
// besides. Every microbatch takes its own measured share (profile.Run.Scale).
// Stretches that were not run are left out.
func Replay(series profile.Series) []Replayed {
	var list []Replayed
	for i, s := range series {
		if s.Run == nil {
			continue
		}
		network := sim.Uniform(s.Run.Latency, s.Run.Bandwidth)
		network.Delay = comm.Delay{Most: s.Run.DelayMost, Seed: s.Run.Seed}
		from := func(costs cost.Phase) float64 {
			cuts, order := s.Run.Layout.Cuts, s.Run.Layout.Schedule
			return sim.Run(sim.Step{
				Schedule: order, Costs: costs.Stages(cuts, order.Map), PerMicrobatch: costs.PerMicrobatch(cuts, order.Map, order.Microbatches),
				Bytes: messages(costs.Table, cuts), Network: network, Gap: costs.Gap, Number: s.Run.Step,
			}).Makespan()
		}
		r := Replayed{Step: s.Step, Steps: s.Steps, Measured: s.Run.Makespan, Predicted: from(s.Costs())}
		if i > 0 && s.Change == "" && series[i-1].Run != nil && !series[i-1].Run.Layout.Equal(s.Run.Layout) {
			r.Ahead = from(series[i-1].Costs())
		}
		list = append(list, r)
	}
	return list
}
