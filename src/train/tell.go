package train

import (
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// settle completes the event of the last decision with the makespan of the
// second step after it: the first touches memory that is new. It tells the event
// then; flush tells it earlier, with the first step's makespan.
func (r *Rank) settle(makespan float64) error {
	b := &r.balancer
	if b.pending == nil {
		return nil
	}
	first := b.pending.After == 0
	b.pending.After = record.Float(makespan)
	if first {
		return nil
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

// layout is where layers were in a step, in which order it was worked on, and what
// the stages of this replica did, which the first of them knows.
type layout struct {
	cuts         partition.Partition
	schedule     schedule.Schedule
	instructions [][]trace.Span
}

// tell gives the observer a step's metrics, and the costs of a stretch of steps
// that has ended. ran is the layout of the step, began when it began, spent what
// followed it.
func (r *Rank) tell(step int, agreed pipeline.Agreement, skip bool, seen profile.Step, ran layout, began, spent float64) error {
	p, t, s := r.Config.Parallel, seen.Costs, seen.Summary
	t.Gap = gap(ran.instructions)
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
	planner, costs := r.balancer.planner, t.Stages(ran.cuts, ran.schedule.Map)
	loads, layers := plan.Loads(ran.schedule.Map, costs), make([]int, p.Stages)
	for v := range costs {
		layers[ran.schedule.Map.Stage(v)] += ran.cuts.Count(v)
	}
	present := balance.Result{StageSeconds: loads, Bottleneck: slices.Max(loads)}
	problem := planner.Line(t)
	optimum, err := balance.Partition(problem)
	if err != nil {
		return fmt.Errorf("balance: %w", err)
	}
	ceiling, err := balance.Ceiling(problem, present, p.Microbatches)
	if err != nil {
		return fmt.Errorf("balance: %w", err)
	}
	m.Predicted = record.Float(sim.Run(planner.Step(t, ran.cuts, ran.schedule)).Makespan())
	took := plan.PerMicrobatch(ran.schedule, ran.instructions, costs)
	m.Idle = planner.Idle(ran.schedule, ran.instructions, took, t.Gap, planner.Caps(t, ran.cuts), s.Makespan())
	m.Idle.Balancing = spent
	m.Bottleneck, m.Optimum, m.Ceiling = record.Float(present.Bottleneck), record.Float(min(optimum.Bottleneck, present.Bottleneck)), record.Float(ceiling)
	m.Schedule, m.Cuts, m.LayersPerStage = string(ran.schedule.Kind), ran.cuts, layers
	for stage, bytes := range planner.Bytes(t, ran.cuts, ran.schedule.Peaks()) {
		m.BytesPerStage = append(m.BytesPerStage, bytes+seen.Memory[stage].Kept)
		if r.Before > 0 {
			m.ResidentPerStage = append(m.ResidentPerStage, seen.Memory[stage].Resident)
		}
	}
	if seen.Joules > 0 {
		m.JoulesPerToken = record.Float(seen.Joules / float64((step+1)*r.x.N()*p.Microbatches*p.Replicas))
	}
	done, ended := r.costs.add(step, t, ran.schedule, r.ran(step, ran, s.Makespan(), took))
	if ended {
		if err := r.Observe.Costs(done); err != nil {
			return err
		}
	}
	return r.Observe.Step(m)
}

// ran says how a step went, for the log of costs: took is what every virtual
// stage took for every microbatch, in seconds until the log relates it to the
// stretch's costs.
func (r *Rank) ran(step int, l layout, makespan float64, took [][]cost.Stage) cost.Run {
	run := cost.Run{
		Cuts: l.cuts, Schedule: string(l.schedule.Kind), Vee: l.schedule.Map.Vee,
		Stages: l.schedule.Map.Stages, Microbatches: l.schedule.Microbatches,
		Latency: r.Config.Comm.LatencySeconds, Bandwidth: r.Config.Comm.BandwidthBytes,
		DelayMost: r.Config.Comm.DelayMost, Seed: r.Config.Run.Seed, Step: step,
		Makespan: makespan, Scale: took,
	}
	if kind := l.schedule.Kind; kind == schedule.KindList || kind == schedule.KindFile {
		run.Order = l.schedule.Lines()
	}
	return run
}

// trace gives the observer the timeline of a step that is worth keeping: the
// second of every layout (the first touches memory that is new), and the last
// before it changes, as many as the settings say.
func (r *Rank) trace(step int, instructions [][]trace.Span, changed bool) error {
	r.held++
	keep := changed || r.held == 2
	if changed {
		r.held = 0
	}
	if !keep || r.traced == r.Config.Run.TraceSteps {
		return nil
	}
	r.traced++
	return r.Observe.Trace(trace.Step{Step: step, Clock: r.Device.Clock().Kind(), Stages: instructions})
}
