package decisions

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/sim"
)

// competitor is a balancer in a simulated run: what it decided, and what it is told.
type competitor struct {
	layout   layout.Layout
	balancer policy.Balancer
	profiler *profile.Profiler     // nil: the balancer goes by the step alone
	first    partition.Partition   // the cuts of the first layout
	cuts     []partition.Partition // after every step
}

// newCompetitor returns a policy's balancer at the first layout.
func (w *world) newCompetitor(balancer, every string, policy Policy) (*competitor, error) {
	p, err := w.planner(balancer, every)
	if err != nil {
		return nil, err
	}
	c := &competitor{}
	if policy.Estimates {
		c.profiler = new(profile.Profiler)
	}
	if c.balancer, err = policy.New(p, w.settings(balancer, every)); err != nil {
		return nil, err
	}
	c.layout, err = p.FirstLayout(cost.Table{Layers: w.phases[0].layers})
	c.first = c.layout.Cuts
	return c, err
}

// simulate runs a world without ranks, for all competitors alike: every step is
// simulated, and what ranks would have measured goes to the balancer.
func (w *world) simulate(list []*competitor) error {
	for step := range w.Steps {
		s := w.measure(step)
		for _, c := range list {
			if err := c.step(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// sampled is what a step's passes take on ranks without noise of their own.
type sampled struct {
	w       *world
	step    int
	samples [][]cost.Stage // by layer and microbatch; shared by all competitors
}

// measure draws a step.
func (w *world) measure(step int) sampled {
	truth := w.truth(step)
	s := sampled{w, step, make([][]cost.Stage, len(truth))}
	all := make([]cost.Stage, len(truth)*w.Microbatches)
	for l := range truth {
		s.samples[l] = all[l*w.Microbatches : (l+1)*w.Microbatches]
		w.passes(step, l, truth[l], s.samples[l])
		for m := range s.samples[l] {
			s.samples[l][m] = tick(s.samples[l][m])
		}
	}
	return s
}

// step simulates a step in the competitor's layout and lets it decide.
func (c *competitor) step(s sampled) error { return c.decide(c.measurement(s), s.w.change(s.step)) }

// decide lets the balancer decide after a step.
func (c *competitor) decide(m profile.Measurement, change dynamic.Change) error {
	if c.profiler != nil {
		m = c.profiler.Observe(m, c.layout, change)
	} else {
		m.Changed = change.Kind != ""
	}
	next, _, err := c.balancer.Decide(m, c.layout)
	c.layout = next
	c.cuts = append(c.cuts, next.Cuts)
	return err
}

// measurement returns what ranks would have gathered of a step in the competitor's
// layout.
func (c *competitor) measurement(s sampled) profile.Measurement {
	w := s.w
	m := profile.Measurement{Joules: -1}
	m.Memory = make([]profile.Memory, w.Stages)
	m.Clock, m.Layers, m.Samples = "virtual", slices.Clone(w.phase(s.step).layers), slices.Clone(s.samples)
	rows := make([][]cost.Stage, w.Stages)
	for stage := range w.Stages {
		rows[stage] = make([]cost.Stage, w.Microbatches)
		lo, hi := c.layout.Cuts.Range(stage)
		factor := w.on(s.step, stage)
		for l := lo; l < hi; l++ {
			if factor != 1 {
				m.Samples[l] = w.scaled(s.step, l, factor)
			}
			for mb, x := range m.Samples[l] {
				rows[stage][mb] = rows[stage][mb].Plus(x)
			}
		}
	}
	m.Summary = sim.Run(sim.Step{Schedule: c.layout.Schedule, PerMicrobatch: rows}).Summary
	return m
}

// scaled draws the passes of a layer anew, on a rank that is so many times slower:
// rounded once, as ranks round them.
func (w *world) scaled(step, layer int, factor float64) []cost.Stage {
	out := make([]cost.Stage, w.Microbatches)
	w.passes(step, layer, w.truth(step)[layer], out)
	for m := range out {
		out[m] = tick(out[m].Scale(factor))
	}
	return out
}

// medians returns the medians of a layer's passes, as profile makes them.
func medians(list []cost.Stage) cost.Stage {
	seconds := make([]float64, len(list))
	middle := func(of func(cost.Stage) float64) float64 {
		for m, s := range list {
			seconds[m] = of(s)
		}
		slices.Sort(seconds)
		return (seconds[(len(list)-1)/2] + seconds[len(list)/2]) / 2
	}
	return cost.Stage{
		Forward: middle(func(s cost.Stage) float64 { return s.Forward }),
		Input:   middle(func(s cost.Stage) float64 { return s.Input }),
		Weight:  middle(func(s cost.Stage) float64 { return s.Weight }),
	}
}
