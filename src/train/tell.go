package train

import (
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// settle completes the event of the last decision with the makespan of the
// first step after it.
func (r *Rank) settle(makespan float64) error {
	if r.balancer.pending != nil {
		r.balancer.pending.After = record.Float(makespan)
	}
	return r.flush()
}

// flush tells the event of the last decision, as far as it is known.
func (r *Rank) flush() error {
	e := r.balancer.pending
	if e == nil {
		return nil
	}
	r.balancer.pending = nil
	return r.event(*e)
}

// tell gives the observer a step's metrics. layout is where layers were in
// the step, began when it began, spent what followed it.
func (r *Rank) tell(step int, agreed pipeline.Agreement, skip bool, seen profile.Step, layout partition.Partition, began, spent float64) error {
	p, t, s := r.Config.Parallel, seen.Costs, seen.Summary
	seconds := s.Finish - began
	m := record.Metrics{
		Step: step, Clock: r.Device.Clock().Kind(),
		Loss: record.Float(agreed.Loss), GradNorm: record.Float(agreed.Norm),
		LR:          record.Float(learningRate(r.Config.Optimizer, step, r.Config.Train.Steps)),
		StepSeconds: record.Float(seconds), BalanceSeconds: record.Float(spent),
		TokensPerSecond: record.Float(float64(r.x.N()*p.Microbatches*p.Replicas) / seconds),
		BubbleRatio:     record.Float(s.BubbleRatio()), Imbalance: record.Float(trace.Imbalance(s.Busy)),
		Makespan: record.Float(s.Makespan()), Skipped: skip,
	}
	// What the costs of this step say about its cuts; by time, whatever the
	// balancer goes by, and beside the best of one chunk on each stage.
	loads, layers := make([]float64, p.Stages), make([]int, p.Stages)
	for v, c := range t.Stages(layout, r.balancer.schedule.Map) {
		stage := r.balancer.schedule.Map.Stage(v)
		loads[stage] += c.Seconds()
		layers[stage] += layout.Count(v)
	}
	present := balance.Result{StageSeconds: loads, Bottleneck: slices.Max(loads)}
	problem := balance.New(t, balance.ByTime, p.Stages, nil, 0)
	optimum, err := balance.Partition(problem)
	if err != nil {
		return fmt.Errorf("balance: %w", err)
	}
	ceiling, err := balance.Ceiling(problem, present, p.Microbatches)
	if err != nil {
		return fmt.Errorf("balance: %w", err)
	}
	m.Predicted = record.Float(r.balancer.predict(t, layout))
	m.Bottleneck, m.Optimum, m.Ceiling = record.Float(present.Bottleneck), record.Float(min(optimum.Bottleneck, present.Bottleneck)), record.Float(ceiling)
	m.Schedule, m.Cuts, m.LayersPerStage = string(r.balancer.schedule.Kind), layout, layers
	for stage, bytes := range r.balancer.bytes(t, layout) {
		m.BytesPerStage = append(m.BytesPerStage, bytes+seen.Memory[stage].Kept)
		if r.Before > 0 {
			m.ResidentPerStage = append(m.ResidentPerStage, seen.Memory[stage].Resident)
		}
	}
	return r.Observe.Step(m)
}
