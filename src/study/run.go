package study

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// Options are what a simulated run is made of besides its costs.
type Options struct {
	Config  config.Config // schedule, stages, replicas, balancer, memory
	Network sim.Network
	Fixed   plan.FixedBytes
	Static  bool    // layers stay where they are first; only the order of work follows the costs
	Spans   bool    // whether segments keep their spans
	Repack  float64 // see plan.BalancerOptions
	Show    func()  // called after every step that has been simulated; nil: nothing is
}

// Segment is consecutive steps of a simulated run with one model and one layout.
type Segment struct {
	Step, Steps int
	Change      string // what changed the model before its first step
	Plan        plan.Plan
	Makespan    float64 // of a step; with random delays this and what follows are means
	Idle        trace.Idle
	Seconds     float64   // of a step, with the gradient sum over replicas
	Exposed     float64   // of it: gradient sum that no work hides
	Moved       int64     // bytes that changed owner before the segment, of one replica
	Moving      float64   // seconds that took
	Kept        plan.Kept // why the balancer left the layout as it is, when it last looked; "" if it did not
}

// Run is a simulated training run.
type Run struct {
	Segments    []Segment
	Seconds     float64 // steps and moves
	Moving      float64 // of which moves
	RankSeconds float64 // seconds of every rank that holds layers, added up
}

// Ceiling returns the largest speedup over a static run that any balancer can
// have on the same work, as balance.Ceiling estimates it, with phases by the time
// they take on the first cuts:
//
//	Σ t / Σ (t / ceiling)
//
// It is 0 where stages hold several chunks, of which the estimate knows nothing.
func (r Run) Ceiling() float64 {
	static, best := 0.0, 0.0
	for _, s := range r.Segments {
		if s.Plan.Map().Chunks > 1 {
			return 0
		}
		seconds := s.Seconds * float64(s.Steps)
		static += seconds
		best += seconds / s.Plan.Ceiling
	}
	return static / best
}

// Simulate runs a training run without ranks: a simulated step for every step of
// the series, after each the decision of the balancer that trains too, and the
// moves that follow. Moves take the bytes of the busiest stage over the slowest
// link; measuring and deciding, which a simulation cannot know, take nothing.
//
// The first schedule is the one for the first costs: training, which does not
// know them, begins with one that needs none.
func Simulate(series cost.Series, o Options) (Run, error) {
	var run Run
	p, err := plan.New(o.Config, o.Network, o.Fixed)
	if err != nil {
		return run, err
	}
	balancer, err := plan.NewBalancer(p, plan.BalancerOptions{Repack: o.Repack})
	if err != nil {
		return run, err
	}
	present, err := p.First(series[0].Table)
	if err != nil {
		return run, err
	}
	var next Segment // what is known of the segment to come
	for i, phase := range series {
		fail := func(err error) (Run, error) { return run, fmt.Errorf("step %d: %w", phase.Step, err) }
		m := profile.Measurement{Measurement: cost.Measurement{Table: phase.Mean()}, Changed: phase.Change != ""}
		if i == 0 || o.Static {
			present = present.With(present.Cuts, p.Schedule(m.Table, present.Cuts))
		}
		next.Change = phase.Change
		begins := true
		for step := range max(1, phase.Steps) {
			if begins {
				next.Step, next.Steps = phase.Step+step, 0
				if err := next.simulate(p, phase, present, o.Spans); err != nil {
					return fail(err)
				}
				m.Summary, m.Balancing = next.Plan.Step.Summary, next.Moving
				m.Summary.End = m.Summary.Start + next.Makespan
				run.Segments = append(run.Segments, next)
				begins, next = false, Segment{}
			}
			run.Segments[len(run.Segments)-1].Steps++
			if o.Show != nil {
				o.Show()
			}
			if o.Static {
				continue
			}
			to, why, err := balancer.Decide(m, present)
			if err != nil {
				return fail(err)
			}
			if why.Decided {
				run.Segments[len(run.Segments)-1].Kept = why.Kept
			}
			m.Changed, m.Balancing = false, 0
			if !to.Equal(present) {
				next.Moved, next.Moving = move(m.Table, present, to, o.Network.Bandwidth())
				if p, err = p.For(to.Stages()); err != nil {
					return fail(err)
				}
				present, begins = to, true
			}
		}
	}
	run.sum()
	return run, nil
}

// sum adds up the segments.
func (r *Run) sum() {
	for _, s := range r.Segments {
		seconds := s.Seconds*float64(s.Steps) + s.Moving
		r.Seconds += seconds
		r.Moving += s.Moving
		r.RankSeconds += seconds * float64(s.Plan.Mesh.Size())
	}
}

// delayDraws is how many steps stand for all of a segment where messages are delayed
// at random; without delays all steps of a segment are equal and one is simulated.
const delayDraws = 8

// simulate simulates a step of a segment; with random delays some steps, for
// their mean.
func (s *Segment) simulate(p *plan.Planner, phase cost.Phase, l layout.Layout, spans bool) error {
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

// move returns the bytes that change owner, and the seconds that takes: those of
// the stage that sends or receives most, over its link.
func move(t cost.Table, from, to layout.Layout, bandwidth float64) (bytes int64, seconds float64) {
	before, after := from.Owners(), to.Owners()
	out, in := make(map[int]int64), make(map[int]int64)
	busiest := int64(0)
	for _, l := range before.Moved(after) {
		b := t.Layers[l].Bytes.Parameters + t.Layers[l].Bytes.Optimizer
		bytes += b
		out[before[l]] += b
		in[after[l]] += b
		busiest = max(busiest, out[before[l]], in[after[l]])
	}
	if bandwidth > 0 {
		seconds = float64(busiest) / bandwidth
	}
	return bytes, seconds
}
