package verdict

import (
	"math/rand/v2"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/sim"
)

// sampled is the costs of layers in a phase with the samples that show their errors.
type sampled struct {
	cost.Phase
	samples [][][]cost.Stage // by step, layer and microbatch, in any unit; nil: none
	centre  []cost.Stage     // by layer: location of the samples
}

// newSampled returns the costs of a phase, without the factors of its microbatches: these hold
// for the phase's own stages only.
func newSampled(p cost.Phase, samples [][][]cost.Stage) *sampled {
	s := &sampled{Phase: p, samples: samples}
	s.Factors = nil
	for l := range s.Layers {
		if s.samples != nil {
			s.centre = append(s.centre, location(s.samples, l))
		}
	}
	return s
}

// location returns the cost of a layer by its samples.
func location(samples [][][]cost.Stage, layer int) cost.Stage {
	steps := make([]cost.Stage, len(samples))
	for i, rows := range samples {
		steps[i] = cost.Location(rows[layer])
	}
	return cost.Location(steps)
}

// redraw returns other costs that might have been measured (bootstrap). It draws with
// replacement as many steps as were sampled, the same for all layers, and as many
// microbatches of each step.
func (s *sampled) redraw(r *rand.Rand) cost.Phase {
	p := s.Phase
	if s.samples == nil {
		return p
	}
	steps := make([]int, len(s.samples))
	for i := range steps {
		steps[i] = r.IntN(len(steps))
	}
	drawn := make([]cost.Stage, len(steps))
	var row []cost.Stage
	p.Layers = slices.Clone(p.Layers)
	for l, layer := range p.Layers {
		for i, step := range steps {
			from := s.samples[step][l]
			row = row[:0]
			for range from {
				row = append(row, from[r.IntN(len(from))])
			}
			drawn[i] = cost.Location(row)
		}
		p.Layers[l] = layer.WithSeconds(layer.Stage().Times(cost.Location(drawn).Over(s.centre[l])))
	}
	return p
}

// trial simulates layouts on one draw of the costs.
type trial struct {
	costs func(*sampled) cost.Phase
	known map[*sampled]*outcomes
}

// measuredCosts returns the costs as they were measured, not drawn anew.
func measuredCosts(s *sampled) cost.Phase { return s.Phase }

// outcomes is the seconds of layouts on one table of costs.
type outcomes struct {
	costs   cost.Phase
	layouts []layout.Layout
	seconds []float64 // by layout: makespan
}

// total returns the sum of the seconds of all segments.
func (t *trial) total(list []segment) float64 {
	sum := 0.0
	for _, s := range list {
		sum += t.seconds(s)
	}
	return sum
}

// seconds returns the seconds of all steps of a segment.
func (t *trial) seconds(s segment) float64 {
	o := t.known[s.costs]
	if o == nil {
		o = &outcomes{costs: t.costs(s.costs)}
		if t.known == nil {
			t.known = make(map[*sampled]*outcomes)
		}
		t.known[s.costs] = o
	}
	i := slices.IndexFunc(o.layouts, s.layout.Equal)
	if i < 0 {
		i = len(o.layouts)
		o.layouts, o.seconds = append(o.layouts, s.layout), append(o.seconds, makespan(s.run, s.layout, s.regroup(o.costs)))
	}
	return float64(s.steps) * (o.seconds[i] + s.rest)
}

// regroup converts costs to the microbatches of the segment's layout.
func (s segment) regroup(costs cost.Phase) cost.Phase {
	n := s.layout.Schedule.Microbatches
	return costs.Regroup(s.joined*n, n)
}

// makespan returns the simulated seconds of a step in layout l, from the first forward to the last
// backward. The network is the one that run r recorded. Random delays of messages are those of step
// costs.Step, the phase's first, so that all layouts of a phase have the same delays.
func makespan(r *record.Course, l layout.Layout, costs cost.Phase) float64 {
	return sim.Run(sim.Step{
		Schedule: l.Schedule, Costs: costs.Stages(l.Cuts, l.Map()), PerMicrobatch: costs.PerMicrobatch(l.Cuts, l.Map(), l.Schedule.Microbatches),
		Bytes: search.Messages(costs.Table, l.Cuts), Network: Network(r), Dispatch: costs.Dispatch, Mesh: l.Mesh, Ranks: l.Ranks, Number: costs.Step,
	}).Makespan()
}

// Network returns the network that a run recorded.
func Network(r *record.Course) sim.Network {
	n := sim.Uniform(r.Latency, r.Bandwidth)
	if b := r.Between; b != nil {
		n.PerNode, n.Between = b.PerNode, sim.Link{Latency: b.Latency, Bandwidth: b.Bandwidth}
	}
	n.Delay = comm.Delay{Most: r.DelayMost, Seed: r.Seed}
	return n
}

const (
	mostDraws, leastDraws = 200, 40
	// drawnInstructions bounds the simulated instructions of all draws to about two seconds.
	drawnInstructions = 1e8
	// perSample is the number of simulated instructions that take as long as one sample.
	perSample = 4
	// keyWorth keys the draws of this package in package random.
	keyWorth = 0x776f727468
)

// addPercentiles sets Low and High of the results. All runs are simulated on the same draws,
// so that errors common to all runs cancel.
func addPercentiles(runs []compared, worths []Result) {
	draws := countDraws(runs)
	if draws == 0 {
		return
	}
	speedups := make([][]float64, len(runs))
	for i := range draws {
		r := random.Keyed(keyWorth, uint64(i))
		t := trial{costs: func(s *sampled) cost.Phase { return s.redraw(r) }}
		for k, run := range runs {
			speedups[k] = append(speedups[k], t.total(run.static)/(worths[k].Price+t.total(run.used)))
		}
	}
	for k, list := range speedups {
		slices.Sort(list)
		at := func(p float64) float64 { return list[int(p*float64(draws-1)+0.5)] }
		worths[k].Draws, worths[k].Low, worths[k].High = draws, at(0.05), at(0.95)
	}
}

// countDraws returns the number of draws: fewer for large runs, 0 without samples.
func countDraws(runs []compared) int {
	work, known := 0, make(map[*sampled]bool)
	for _, r := range runs {
		for _, s := range append(slices.Clone(r.used), r.static...) {
			for _, list := range s.layout.Schedule.Lists {
				work += len(list)
			}
			if s.costs.samples == nil || known[s.costs] {
				continue
			}
			known[s.costs] = true
			for _, rows := range s.costs.samples {
				work += perSample * len(rows) * len(rows[0])
			}
		}
	}
	if len(known) == 0 {
		return 0
	}
	return min(max(drawnInstructions/work, leastDraws), mostDraws)
}
