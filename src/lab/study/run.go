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
	Spans    bool                                // whether segments keep their spans
	Observe  record.Observer                     // receives the record that an executed run writes; nil: nobody
	Placing  func(config.Config) dynamic.Placing // decides where pieces of layers are; nil, or a nil result: they stay where costs take them to be
	Pack     map[int]int                         // by step: from there on the number of stages, whatever that costs
	Show     func(steps int)                     // called with the number of steps simulated since the last call; may be nil
}

// Segment is consecutive steps of a simulated run with one model and one layout.
type Segment struct {
	Step, Steps int
	Change      string // what changed the model before its first step
	Plan        search.Plan
	Makespan    float64 // of a step; with random delays this and what follows are means
	Idle        trace.Idle
	Seconds     float64      // of a step, with the gradient sum over replicas
	Even        float64      // of a step, as the balancer predicts it on the costs of all the segment's steps
	Exposed     float64      // of it: gradient sum that no work hides
	Moves       int          // before the segment; 0 or 1, but where one step stands for several
	Copied      int64        // bytes that the busiest rank of a stage sends or receives in a step because of copies of pieces, where this is known
	Placed      *plan.Placed // which pieces moved before its first step; nil: none did
	Moved       int64        // bytes that changed owner in them, of one replica
	Moving      float64      // seconds that took
	Measuring   float64      // seconds that all its steps were measured for
	Deciding    float64      // seconds of decisions after its steps
	Nodes       int          // that hold layers
}

// Run is a simulated training run.
type Run struct {
	Segments    []Segment
	Seconds     float64 // steps, and balancing in between
	Moving      float64 // the part of moves
	Measuring   float64 // the part of measuring
	Deciding    float64 // the part of decisions
	RankSeconds float64 // seconds of every rank that holds layers, added up
	Reference   float64 // seconds of a step of the dense model, as packing goes by it; 0: not known
}

// Ceiling returns the largest speedup over a static run that any balancer can have on the
// same work, as balance.Headroom estimates it. With t the time of a phase on the first
// cuts it is
//
//	Σ t / Σ (t / ceiling)
//
// It is 0 where stages hold several chunks, which the estimate does not know.
func (r Run) Ceiling() float64 {
	static, best := 0.0, 0.0
	for _, s := range r.Segments {
		if s.Plan.Map().Chunks > 1 {
			return 0
		}
		seconds := s.Seconds * float64(s.Steps)
		static += seconds
		best += seconds / s.Plan.Headroom
	}
	return static / best
}

// Simulate runs a training run without ranks. For every sampled step of the series it simulates the
// step, makes the decision of the balancer that also runs in training, and moves layers. Moves take
// the bytes of the busiest stage over the slowest link. A simulation cannot know the time of
// measuring and deciding: it takes the times of real runs, and none on cuts that never move.
//
// The first schedule is the one for the first costs. Training does not know them, and begins with a
// schedule that needs none.
func Simulate(series cost.Series, o Options) (Run, error) {
	var run Run
	p, err := search.New(o.Config, o.Network, o.Fixed)
	if err != nil {
		return run, err
	}
	var placing dynamic.Placing
	if o.Placing != nil {
		placing = o.Placing(o.Config)
	}
	balancer, err := policy.New(p, policy.Options{Pack: o.packs(series), Nodes: o.nodes(), Placing: placing})
	if err != nil {
		return run, err
	}
	present, err := p.Step(series[0].Table, layout.Layout{}).FirstLayout()
	if err != nil {
		return run, err
	}
	known, records := knowledge{recorded: o.Recorded}, o.recorder()
	next, spent := Segment{}, 0.0 // what is known of the segment to come; seconds that followed the step before
	for i, phase := range series {
		fail := func(err error) (Run, error) { return run, fmt.Errorf("step %d: %w", phase.Step, err) }
		costs := o.costs(placing, phase, present)
		m := profile.Measurement{Measurement: cost.Measurement{Table: costs.Mean()}, Changed: phase.Change != ""}
		if i == 0 || o.Static {
			present = p.Step(m.Table, present).Layout(present.Cuts)
		}
		next.Change = phase.Change
		if err := records.changed(phase.Step, phase.Change); err != nil {
			return fail(err)
		}
		begins, steps := true, max(1, phase.Steps)
		for done, stands := 0, 0; done < steps; done += stands {
			if begins {
				next.Step, next.Nodes = phase.Step+done, o.nodesOf(present)
				if err := next.simulate(p, costs, present, o.Spans || o.Observe != nil && o.Config.Run.TraceSteps > 0); err != nil {
					return fail(err)
				}
				o.copy(placing, &next, present)
				m.Summary = next.Plan.Step.Summary
				next.Even = known.even(next.Seconds, i, p, costs, present)
				m.Summary.End = m.Summary.Start + next.Makespan
				if n := len(run.Segments); n > 0 && !o.Spans {
					run.Segments[n-1].Plan.Step.Spans = nil
				}
				run.Segments = append(run.Segments, next)
				begins, next = false, Segment{}
			}
			s := &run.Segments[len(run.Segments)-1]
			stands = o.Sampling.stands(phase.Step+done, steps-done)
			s.Steps += stands
			if o.Show != nil {
				o.Show(stands)
			}
			line := told{step: phase.Step + done, steps: stands, costs: costs, of: s, ran: present, next: present}
			if o.Static {
				if err := records.write(p, line); err != nil {
					return fail(err)
				}
				continue
			}
			known.after(&m, i, done, costs, present)
			if placing != nil && phase.Routed != nil {
				m.Counts, m.Work = phase.Routed.Counts(), loads(placing, phase, present)
				m.Measurement.Fixed = phase.Routed.Fixed()
			}
			m.Balancing = spent
			to, why, err := balancer.Decide(m, present)
			if err != nil {
				return fail(err)
			}
			run.Reference = why.Reference.Seconds
			measuring, deciding := o.measuring(present), 0.0
			if why.Decided {
				deciding = o.deciding(present)
			}
			line.next, line.why, line.deciding = to, why, measuring+deciding
			s.Measuring += measuring * float64(stands)
			s.Deciding += deciding * float64(stands)
			m.Changed, spent = false, measuring+deciding
			if next.Placed = why.Placed; why.Placed != nil && o.Network.Bandwidth() > 0 {
				next.Moving = float64(stands) * float64(why.Placed.Moved) / o.Network.Bandwidth()
				spent += next.Moving
				line.moving = next.Moving / float64(stands)
			}
			if !to.Equal(present) {
				bytes, moving := o.move(m.Table, present, to, phase.Step+done)
				spent += moving
				line.moved, line.moving = layout.Moved{Layers: len(present.Owners().Moved(to.Owners())), Bytes: bytes}, line.moving+moving
				next.Moved, next.Moving = int64(stands)*bytes, next.Moving+float64(stands)*moving
				if bytes > 0 {
					next.Moves = stands
				}
			}
			if i == len(series)-1 && done+stands == steps { // no step follows in the new layout
				line.next, line.why, line.moved, line.moving = present, plan.Reason{Reference: why.Reference}, layout.Moved{}, 0
			}
			if err := records.write(p, line); err != nil {
				return fail(err)
			}
			if !to.Equal(present) {
				if p, err = p.Match(to); err != nil {
					return fail(err)
				}
				present, begins = to, true
				costs = o.costs(placing, phase, present)
				m.Table = costs.Mean()
			}
		}
	}
	run.sum()
	return run, records.end()
}

// costs returns what a phase costs in the microbatches and with the pieces of a layout: it has
// those of the settings.
func (o Options) costs(p dynamic.Placing, phase cost.Phase, l layout.Layout) cost.Phase {
	if p != nil && phase.Routed != nil {
		phase.Scale = phase.Routed.Scale(loads(p, phase, l))
	}
	return phase.Regroup(o.Config.Parallel.Microbatches, l.Schedule.Microbatches)
}

// loads returns what the replicas of a layout's layers have to do in a phase.
func loads(p dynamic.Placing, phase cost.Phase, l layout.Layout) [][]float64 {
	return phase.Routed.Loads(func(layer int, values []int64) float64 {
		return p.Load(l.Pieces, layer, values)
	})
}

// copy adds to the steps of a segment the time that weights and gradients of copies take, which
// nothing hides.
func (o Options) copy(p dynamic.Placing, s *Segment, l layout.Layout) {
	if p == nil {
		return
	}
	bytes, seconds := policy.Copied(p, o.Network, l, l.Pieces)
	s.Copied, s.Seconds = bytes, s.Seconds+seconds
}

// sum adds up the segments.
func (r *Run) sum() {
	for _, s := range r.Segments {
		seconds := s.Seconds*float64(s.Steps) + s.Balancing()
		r.Seconds += seconds
		r.Moving += s.Moving
		r.Measuring += s.Measuring
		r.Deciding += s.Deciding
		r.RankSeconds += seconds * float64(s.Plan.Mesh.Size())
	}
}

// Balancing returns the seconds of moves before the segment, and of measuring and
// deciding after its steps.
func (s Segment) Balancing() float64 { return s.Moving + s.Measuring + s.Deciding }

// delayDraws is how many steps stand for all of a segment where messages are delayed
// at random; without delays all steps of a segment are equal and one is simulated.
const delayDraws = 8

// simulate simulates a step of a segment; with random delays some steps, for
// their mean.
func (s *Segment) simulate(p *search.Problem, phase cost.Phase, l layout.Layout, spans bool) error {
	n := 1
	if p.Network.Delay.Most > 1 {
		n = min(delayDraws, max(1, phase.Steps))
	}
	for k := range n {
		step, err := p.Simulate(phase, l, phase.Step+k)
		if err != nil {
			return err
		}
		if k == 0 {
			s.Plan = step
		}
		share := 1 / float64(n)
		s.Seconds += share * step.Seconds
		s.Exposed += share * step.Exposed
		s.Makespan += share * step.Step.Makespan()
		s.Idle = s.Idle.Plus(step.Idle, share)
	}
	if !spans {
		s.Plan.Step.Spans = nil
	}
	return nil
}

// knowledge is what a simulated balancer knows of costs: as much after every step as the
// one of the run that recorded them did.
type knowledge struct {
	recorded record.Series
	profiler profile.Profiler
}

// of returns what the run's steps of a phase told; nil: costs are known.
func (k *knowledge) of(phase int) []cost.Known {
	if phase >= len(k.recorded) {
		return nil
	}
	return k.recorded[phase].Known
}

// after adds to a measurement the knowledge of the first `done` steps of a phase, and of the next
// phase.
func (k *knowledge) after(m *profile.Measurement, phase, done int, costs cost.Phase, l layout.Layout) {
	if told := k.of(phase); told != nil {
		step := told[done%len(told)]
		step.Forget = step.Forget && done < len(told)
		m.Estimate = k.profiler.Again(costs.Table, step, l)
	}
}

// even returns the seconds that the balancer predicts of a phase's step, which takes some:
// it goes by costs that noise disturbs little.
func (k *knowledge) even(seconds float64, phase int, p *search.Problem, costs cost.Phase, l layout.Layout) float64 {
	if k.of(phase) == nil {
		return seconds
	}
	t := costs.Table
	t.Dispatch = 0 // as balancers have it
	s := p.Step(t, l)
	return s.Seconds(s.Layout(l.Cuts))
}
