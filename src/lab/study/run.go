package study

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/policy"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// Options are what a simulated run is made of besides its costs.
type Options struct {
	Config   config.Config // schedule, stages, replicas, balancer, memory, packing, what is assumed
	Network  sim.Network
	Fixed    search.FixedBytes
	Sampling Sampling
	Recorded record.Series                       // the phases whose costs are simulated, where they are of a run: a balancer that packs knows them as the run's did; nil: it knows what layers cost
	Static   bool                                // layers stay where they are first; only the order of work follows the costs
	Observe  record.Observer                     // receives the record, as the Run does; nil: nobody else
	Placing  func(config.Config) dynamic.Placing // decides where pieces of layers are; nil, or a nil result: they stay where costs take them to be
	Pack     map[int]int                         // by step: from there on the number of stages, whatever that costs
	Memo     *search.Memo                        // predictions that runs with other balancers on the same series share; nil: none
	Show     func(steps int)                     // called with the number of steps simulated since the last call; may be nil
}

// nodes returns the node of every rank that the run begins with, nil if all are on one.
func (o Options) nodes() []int {
	if o.Network.PerNode == 0 {
		return nil
	}
	list := make([]int, o.Config.Parallel.Stages*o.Config.Parallel.Replicas)
	for rank := range list {
		list[rank] = rank / o.Network.PerNode
	}
	return list
}

// problem returns the problem of all steps.
func (o Options) problem() (*search.Problem, error) {
	p, err := search.New(o.Config, o.Network, o.Fixed)
	if err == nil {
		p.Memo = o.Memo
	}
	return p, err
}

// Simulate runs a training run without ranks. For every sampled step of the series it simulates the
// step, makes the decision of the balancer that also runs in training, and moves layers. Moves take
// the bytes of the busiest stage over the slowest link. A simulation cannot know the time of
// measuring and deciding: it takes the times of real runs, and none on cuts that never move.
//
// The first schedule is the one for the first costs. Training does not know them, and begins with a
// schedule that needs none.
func Simulate(series cost.Series, o Options) (*Run, error) {
	run := new(Run)
	s, err := newSimulation(series, o, run)
	if err != nil {
		return run, err
	}
	for i, phase := range series {
		if err := s.phase(i, phase, i == len(series)-1); err != nil {
			return run, fmt.Errorf("step %d: %w", phase.Step, err)
		}
	}
	return run, s.records.end()
}

// simulation is the state of a simulated run.
type simulation struct {
	Options
	problem  *search.Problem
	placing  dynamic.Placing
	balancer policy.Balancer
	profiler profile.Profiler
	records  *recorder
	present  layout.Layout
	spent    float64 // seconds of balancing after the step before
}

// newSimulation returns a simulation before its first step. Its record goes to the run, and to
// o.Observe.
func newSimulation(series cost.Series, o Options, run *Run) (*simulation, error) {
	s := &simulation{Options: o, records: o.recorder(run)}
	var err error
	if s.problem, err = o.problem(); err != nil {
		return nil, err
	}
	if o.Placing != nil {
		s.placing = o.Placing(o.Config)
	}
	if s.balancer, err = policy.New(s.problem, policy.Options{Pack: o.packs(series), Nodes: o.nodes(), Placing: s.placing}); err != nil {
		return nil, err
	}
	s.present, err = s.problem.Step(series[0].Table, layout.Layout{}).FirstLayout()
	return s, err
}

// phase simulates the steps of the phase with the index i.
func (s *simulation) phase(i int, phase cost.Phase, last bool) error {
	costs := s.costs(phase)
	m := profile.Measurement{Measurement: cost.Measurement{Table: costs.Mean()}, Changed: phase.Change != ""}
	if i == 0 || s.Static {
		s.present = s.problem.Step(m.Table, s.present).Layout(s.present.Cuts)
	}
	if err := s.records.changed(phase.Step, phase.Change); err != nil {
		return err
	}
	var now *step // nil: the layout is new
	var err error
	steps := max(1, phase.Steps)
	for done, stands := 0, 0; done < steps; done += stands {
		if now == nil {
			if now, err = s.simulate(costs); err != nil {
				return err
			}
			m.Summary = now.summary
		}
		stands = s.Sampling.stands(phase.Step+done, steps-done)
		if s.Show != nil {
			s.Show(stands)
		}
		d := record.Done{Step: phase.Step + done, Steps: stands, Ran: s.present, Next: s.present}
		if s.Static {
			if err := s.records.write(now, d); err != nil {
				return err
			}
			continue
		}
		s.learn(&m, i, done, phase, costs)
		if d.Next, d.Why, err = s.balancer.Decide(m, s.present); err != nil {
			return err
		}
		to := d.Next
		s.price(&d, m.Table)
		m.Changed, s.spent = false, d.Deciding+d.Moving
		if last && done+stands == steps { // no step follows in the new layout
			d.Next, d.Why, d.Moved, d.Moving = s.present, plan.Reason{Reference: d.Why.Reference}, layout.Moved{}, 0
		}
		if err := s.records.write(now, d); err != nil {
			return err
		}
		if !to.Equal(s.present) {
			if s.problem, err = s.problem.Match(to); err != nil {
				return err
			}
			s.present, now = to, nil
			costs = s.costs(phase)
			m.Table = costs.Mean()
		}
	}
	return nil
}

// learn adds to a measurement what the balancer knows after the first `done` steps of a phase: as much
// as the balancer of the run that recorded the costs knew, else all.
func (s *simulation) learn(m *profile.Measurement, i, done int, phase, costs cost.Phase) {
	if i < len(s.Recorded) && s.Recorded[i].Known != nil {
		known := s.Recorded[i].Known
		step := known[done%len(known)]
		step.Forget = step.Forget && done < len(known)
		m.Estimate = s.profiler.Again(costs.Table, step, s.present)
	}
	if s.placing != nil && phase.Routed != nil {
		m.Counts, m.Work = phase.Routed.Counts(), s.loads(phase)
		m.Measurement.Fixed = phase.Routed.Fixed()
	}
	m.Balancing = s.spent
}

// price sets the seconds of a step's measuring, decision and moves, and the bytes that move.
func (s *simulation) price(d *record.Done, t cost.Table) {
	d.Measuring = s.measuring(s.present)
	if d.Deciding = d.Measuring; d.Why.Decided {
		d.Deciding += s.deciding(s.present)
	}
	if d.Why.Placed != nil && s.Network.Bandwidth() > 0 {
		d.Moving = float64(d.Why.Placed.Moved) / s.Network.Bandwidth()
	}
	if !d.Next.Equal(s.present) {
		bytes, seconds := s.move(t, s.present, d.Next, d.Step)
		d.Moved = layout.Moved{Layers: len(s.present.Owners().Moved(d.Next.Owners())), Bytes: bytes}
		d.Moving += seconds
	}
}

// costs returns what a phase costs in the microbatches and with the pieces of the layout: it has
// those of the settings.
func (s *simulation) costs(phase cost.Phase) cost.Phase {
	if s.placing != nil && phase.Routed != nil {
		phase.Scale = phase.Routed.Scale(s.loads(phase))
	}
	return phase.Regroup(s.Config.Parallel.Microbatches, s.present.Schedule.Microbatches)
}

// loads returns what the replicas of the layout's layers have to do in a phase.
func (s *simulation) loads(phase cost.Phase) [][]float64 {
	return phase.Routed.Loads(func(layer int, values []int64) float64 {
		return s.placing.Load(s.present.Pieces, layer, values)
	})
}

// step is a simulated step of a phase in a layout. With random delays the times are means over some
// steps.
type step struct {
	search.Plan
	costs   cost.Table
	model   string // see cost.Phase
	summary trace.Summary
}

// delayDraws is how many steps stand for all of a phase where messages are delayed at random;
// without delays all steps of a phase are equal and one is simulated.
const delayDraws = 8

// simulate simulates a step in the present layout. The time that weights and gradients of copies take
// is added, because nothing hides it.
func (s *simulation) simulate(phase cost.Phase) (*step, error) {
	n := 1
	if s.problem.Network.Delay.Most > 1 {
		n = min(delayDraws, max(1, phase.Steps))
	}
	var mean step
	var idle trace.Idle
	seconds, makespan := 0.0, 0.0
	for k := range n {
		p, err := s.problem.Simulate(phase, s.present, phase.Step+k)
		if err != nil {
			return nil, err
		}
		if k == 0 {
			mean = step{p, phase.Table, search.Shape(s.problem.Config), p.Step.Summary}
			mean.summary.Busy = make([]float64, len(p.Step.Busy))
		}
		share := 1 / float64(n)
		seconds += share * p.Seconds
		makespan += share * p.Step.Makespan()
		idle = idle.Plus(p.Idle, share)
		for stage, busy := range p.Step.Busy {
			mean.summary.Busy[stage] += share * busy
		}
	}
	if s.placing != nil {
		_, copying := policy.Copied(s.placing, s.Network, s.present, s.present.Pieces)
		seconds += copying
	}
	mean.Idle, mean.summary.End, mean.summary.Finish = idle, mean.summary.Start+makespan, mean.summary.Start+seconds
	return &mean, nil
}
