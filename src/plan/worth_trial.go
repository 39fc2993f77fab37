package plan

import (
	"math/rand/v2"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/sim"
)

// sampled is what layers cost in a phase, with the samples that say how far that is
// to be trusted.
type sampled struct {
	cost.Phase
	samples [][][]cost.Stage // by step, layer and microbatch, in any unit; nil: none
	centre  []cost.Stage     // by layer: location of the samples
}

// newSampled returns the costs of a phase. The shares that its microbatches took on
// its own stages say nothing of other layouts and are left out.
func newSampled(p profile.Phase) *sampled {
	s := &sampled{Phase: p.Phase, samples: p.Samples}
	s.Factors = nil
	for l := range s.Layers {
		if s.samples != nil {
			s.centre = append(s.centre, location(s.samples, l))
		}
	}
	return s
}

// location returns what a layer's samples say that it costs.
func location(samples [][][]cost.Stage, layer int) cost.Stage {
	steps := make([]cost.Stage, len(samples))
	for i, rows := range samples {
		steps[i] = cost.Location(rows[layer])
	}
	return cost.Location(steps)
}

// draw returns the costs as they might have been measured: as many steps as were
// sampled, drawn from them for all layers alike, and of each as many microbatches.
func (s *sampled) draw(r *rand.Rand) cost.Phase {
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
		p.Layers[l] = layer.With(layer.Stage().Times(cost.Location(drawn).Over(s.centre[l])))
	}
	return p
}

// trial simulates layouts on one choice of the costs.
type trial struct {
	costs func(*sampled) cost.Phase
	known map[*sampled]*outcomes
}

// outcomes is what layouts take on some costs.
type outcomes struct {
	costs   cost.Phase
	layouts []layout.Layout
	seconds []float64 // by layout: makespan
}

// total returns the seconds of all segments.
func (t *trial) total(list []segment) float64 {
	sum := 0.0
	for _, s := range list {
		sum += t.seconds(s)
	}
	return sum
}

// seconds returns what the steps of a segment take.
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
		o.layouts, o.seconds = append(o.layouts, s.layout), append(o.seconds, makespan(s.run, s.layout, o.costs))
	}
	return float64(s.steps) * (o.seconds[i] + s.rest)
}

// makespan returns the simulated seconds of a step in a layout on the network of a
// run. Delays are those of the costs' first step, whatever the layout.
func makespan(r *profile.Run, l layout.Layout, costs cost.Phase) float64 {
	network := sim.Uniform(r.Latency, r.Bandwidth)
	network.Delay = comm.Delay{Most: r.DelayMost, Seed: r.Seed}
	return sim.Run(sim.Step{
		Schedule: l.Schedule, Costs: costs.Stages(l.Cuts, l.Map()), PerMicrobatch: costs.PerMicrobatch(l.Cuts, l.Map(), l.Schedule.Microbatches),
		Bytes: Messages(costs.Table, l.Cuts), Network: network, Dispatch: costs.Dispatch, Mesh: l.Mesh, Number: costs.Step,
	}).Makespan()
}

const (
	mostDraws, leastDraws = 200, 40
	// drawnInstructions bounds the simulated instructions of all draws: some seconds.
	drawnInstructions = 1e8
	// keyWorth sets the draws apart from others of the package random.
	keyWorth = 0x776f727468
)

// spread sets the percentiles of the speedup. Both runs are simulated on the same
// draws, so that what hits both alike does not count.
func (w *Worth) spread(used, static []segment) {
	work, known := 0, false
	for _, s := range append(slices.Clone(used), static...) {
		known = known || s.costs.samples != nil
		for _, list := range s.layout.Schedule.Lists {
			work += len(list)
		}
	}
	if !known {
		return
	}
	w.Draws = min(max(drawnInstructions/work, leastDraws), mostDraws)
	speedups := make([]float64, w.Draws)
	for i := range speedups {
		r := random.Keyed(keyWorth, uint64(i))
		t := trial{costs: func(s *sampled) cost.Phase { return s.draw(r) }}
		speedups[i] = t.total(static) / (w.price() + t.total(used))
	}
	slices.Sort(speedups)
	at := func(p float64) float64 { return speedups[int(p*float64(w.Draws-1)+0.5)] }
	w.Low, w.High = at(0.05), at(0.95)
}
