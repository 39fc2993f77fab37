package plan

import (
	"fmt"

	"dynmo/src/cost"
	"dynmo/src/sim"
)

// Replayed is how well the simulator knows a stretch that really ran.
type Replayed struct {
	Step, Steps         int
	Measured, Predicted float64 // seconds, makespan
	// Ahead is what the costs of the stretch before predict for this one, where
	// layers moved in between and the model did not change; else 0. The balancer
	// knew no more.
	Ahead float64
}

// Error returns predicted / measured - 1.
func (r Replayed) Error() float64 { return r.Predicted/r.Measured - 1 }

// Replay simulates the stretches that ran as they ran: their own stages, cuts,
// microbatches and schedule, on their own costs and the links of the settings'
// [comm], not those of a what-if. A list schedule is made anew from the costs.
// Stretches that were not run are left out.
func Replay(series cost.Series, o Options) ([]Replayed, error) {
	var list []Replayed
	for i, s := range series {
		if s.Run == nil {
			continue
		}
		c := o.Config
		c.Parallel.Stages, c.Parallel.Microbatches = s.Run.Stages, s.Run.Microbatches
		c.Schedule.Kind = s.Run.Schedule
		c.Schedule.Chunks = max(2, s.Run.Cuts.Stages()/s.Run.Stages)
		p, err := New(c, sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes), o.Fixed)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", s.Step, err)
		}
		if n := p.Map.Virtual(); s.Run.Cuts.Stages() != n {
			return nil, fmt.Errorf("step %d: run.cuts: %d virtual stages, want %d (%s)", s.Step, s.Run.Cuts.Stages(), n, s.Run.Schedule)
		}
		from := func(costs cost.Stretch) float64 {
			step := p.Step(costs.Table, s.Run.Cuts, p.Schedule(costs.Mean(), s.Run.Cuts))
			step.PerMicrobatch = costs.PerMicrobatch(s.Run.Cuts, p.Map, p.Microbatches)
			return sim.Run(step).Makespan()
		}
		r := Replayed{Step: s.Step, Steps: s.Steps, Measured: s.Run.Makespan, Predicted: from(s)}
		if i > 0 && s.Change == "" && series[i-1].Run != nil && !series[i-1].Run.Cuts.Equal(s.Run.Cuts) {
			r.Ahead = from(series[i-1])
		}
		list = append(list, r)
	}
	return list, nil
}
