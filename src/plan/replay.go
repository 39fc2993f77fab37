package plan

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
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
// besides. Every microbatch takes its own measured share (cost.Run.Scale).
// Stretches that were not run are left out.
func Replay(series cost.Series) ([]Replayed, error) {
	var list []Replayed
	for i, s := range series {
		if s.Run == nil {
			continue
		}
		order, err := ran(*s.Run)
		if err != nil {
			return nil, fmt.Errorf("step %d: run: %w", s.Step, err)
		}
		network := sim.Uniform(s.Run.Latency, s.Run.Bandwidth)
		network.Delay = comm.Delay{Most: s.Run.DelayMost, Seed: s.Run.Seed}
		from := func(costs cost.Phase) float64 {
			cuts, m := s.Run.Cuts, order.Map
			return sim.Run(sim.Step{
				Schedule: order, Costs: costs.Stages(cuts, m), PerMicrobatch: costs.PerMicrobatch(cuts, m, order.Microbatches),
				Bytes: messages(costs.Table, cuts), Network: network, Gap: costs.Gap, Number: s.Run.Step,
			}).Makespan()
		}
		r := Replayed{Step: s.Step, Steps: s.Steps, Measured: s.Run.Makespan, Predicted: from(s)}
		if i > 0 && s.Change == "" && series[i-1].Run != nil && relaid(*series[i-1].Run, *s.Run) {
			r.Ahead = from(series[i-1])
		}
		list = append(list, r)
	}
	return list, nil
}

// relaid reports whether layers moved, or the order of work changed.
func relaid(before, after cost.Run) bool {
	return !before.Cuts.Equal(after.Cuts) || before.Schedule != after.Schedule || !slices.Equal(before.Order, after.Order)
}

// ran returns the schedule of a run.
func ran(r cost.Run) (schedule.Schedule, error) {
	kind, chunks := schedule.Kind(r.Schedule), r.Cuts.Stages()/r.Stages
	if r.Order != nil {
		return schedule.Parse(kind, partition.Map{Stages: r.Stages, Chunks: chunks, Vee: r.Vee}, r.Microbatches, r.Order)
	}
	return schedule.New(kind, r.Stages, chunks, r.Microbatches)
}
