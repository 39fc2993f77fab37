// Package profile turns the traces of all ranks into one measurement of a step,
// and measurements into the phases of a run. What comes in is each rank's spans;
// what goes out, on the first rank, is what each layer costs and how the stages were used.
package profile

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/trace"
)

// Memory is memory of a rank in bytes, as it is after a step.
type Memory struct {
	Resident  int64 // in RAM, whatever for
	Allocated int64 // of the device
	Kept      int64 // of the device, free, for layers that arrive later
}

// Own is what a rank reports of itself besides its spans.
type Own struct {
	Memory
	Joules    float64 // since the run began; -1 where they are not known
	Balancing float64 // seconds that followed the step before: measuring, deciding, moving
}

// Measurement is what a step showed. Only the root knows it (see Profiler).
type Measurement struct {
	cost.Measurement               // of a rank of speed 1; Slow says how much slower stages are
	Estimate         cost.Estimate // from this step and those before it that the model has not changed since
	Changed          bool          // the model changed before the step
	Summary          trace.Summary // of the slowest replica
	Memory           []Memory      // by stage: the largest of the replicas
	Joules           float64       // of all ranks; -1 if one does not know its own
	Balancing        float64       // the largest of all ranks
	// Paces is by stage how many times longer than the fastest one at its best it took, for
	// the same work; Slowest is by stage the replica whose rank computed longest.
	Paces   []float64
	Slowest []int

	// Instructions is by stage what the first replica did, a span for each instruction in
	// order.
	Instructions [][]trace.Span

	values []value // by layer; nil where they are still to be made from the samples
	forget bool    // costs of steps before this one do not hold
}

// Profiler measures steps. That of the first stage of the first replica, the root, remembers
// what layers cost before, and how fast ranks are.
type Profiler struct {
	Stages, Replicas *comm.Group      // of this rank: stages of its replica, replicas of its stage
	Counts           []dynamic.Counts // all that layers may count, the same on every rank
	estimator        estimator
	known            []known // see shared
}

// root reports whether this rank learns what all measured.
func (p *Profiler) root() bool { return p.Stages.Rank() == 0 && p.Replicas.Rank() == 0 }

// Measure returns, on the root, what all ranks measured in a step of a layout, nothing on the
// others. change is how the model changed before it. Reports go up a tree over the replicas of
// each stage, which joins them, and then over the stages. Collective over both.
func (p *Profiler) Measure(x *model.Exec, s *model.Stage, l layout.Layout, done pipeline.Result, own Own, change dynamic.Change) (Measurement, error) {
	mine := report{own: own, summaries: []trace.Summary{trace.Summarise(done.Spans)}, counts: dynamic.SumCounts(p.Counts, done.Counts)}
	p.local(&mine, x, s, done.Spans, l)
	code := func(r report) []byte { return pack(p.Counts, r, (*message).report) }
	read := func(b []byte) report { return unpack(p.Counts, b, (*message).report) }
	joined, first, err := comm.Fold(p.Replicas, 0, mine, code, func(r report, later []byte) report { return r.with(read(later)) })
	if err != nil {
		return Measurement{}, fmt.Errorf("profile: over replicas: %w", err)
	}
	if !first {
		return Measurement{}, nil
	}
	p.couple(&joined, s)
	joined.instructions = done.Instructions
	stages, err := p.Stages.Gather(0, code(joined))
	if err != nil {
		return Measurement{}, fmt.Errorf("profile: over stages: %w", err)
	}
	if !p.root() {
		return Measurement{}, nil
	}
	rows := make([]report, len(stages))
	for stage, b := range stages {
		rows[stage] = read(b)
	}
	return p.Observe(joinStages(x.Device.Clock().Kind(), s.Config.Names(), rows), l, change), nil
}

// Observe returns a step's measurement in a layout with what this step and those
// before it tell of layers and ranks. change is how the model changed before it.
func (p *Profiler) Observe(m Measurement, l layout.Layout, change dynamic.Change) Measurement {
	owners := l.Owners()
	m.Changed, m.forget = change.Kind != "", change.Costs
	m.Scale = p.estimator.scale(m.Work)
	if m.values == nil {
		for l, samples := range m.Samples {
			v, _ := evaluate(samples, p.estimator.fixed(l), row(m.Work, l))
			m.values = append(m.values, v)
		}
	}
	m.Estimate = p.estimator.observe(m.Measurement, m.values, owners, change.Costs)
	m.Paces = p.estimator.nowTaken()
	if m.Work != nil {
		m.Fixed = make([]float64, len(m.Work))
		for l := range m.Fixed {
			m.Fixed[l] = p.estimator.fixed(l)
		}
	}
	m.Slow = m.Estimate.Slow
	unslow(m.Layers, owners, m.Slow)
	return m
}

// report is what a rank, or a stage with all its replicas, sends to the root.
type report struct {
	own          Own
	summaries    []trace.Summary // by replica
	layers       []layerReport
	counts       []cost.CountSum
	instructions []trace.Span // of the first replica; none until its replicas are joined
}

// layerReport is what a layer cost.
type layerReport struct {
	id      int
	cost    cost.Layer
	value   value
	samples []cost.Stage // by microbatch of the replica
	work    []float64    // likewise; nil: all of the tokens
}

// local sums up this rank's spans of layers.
func (p *Profiler) local(r *report, x *model.Exec, s *model.Stage, spans []trace.Span, l layout.Layout) {
	index := make(map[int]int, len(s.Layers)) // of a layer in r.layers
	for i, layer := range s.Layers {
		c := layer.Cost(x)
		index[layer.ID] = i
		r.layers = append(r.layers, layerReport{id: layer.ID, cost: c, samples: make([]cost.Stage, l.Schedule.Microbatches)})
	}
	for _, sp := range spans {
		if !sp.Op.Pipeline() {
			continue
		}
		to := &r.layers[index[sp.Layer]].samples[sp.Microbatch]
		switch sp.Op {
		case trace.F:
			to.Forward = sp.Seconds()
		case trace.I:
			to.Input = sp.Seconds()
		case trace.W:
			to.Weight = sp.Seconds()
		}
	}
	for i, row := range work(spans, index, l.Schedule.Microbatches, x.N()) {
		r.layers[i].work = row
		p.expect(&r.layers[i], spans)
		p.evaluate(&r.layers[i])
	}
}

// evaluate says what a layer cost by its samples.
func (p *Profiler) evaluate(l *layerReport) {
	var medians cost.Stage
	l.value, medians = evaluate(l.samples, p.of(l.id).fixed, l.work)
	l.cost = l.cost.WithSeconds(medians)
}

// couple says what layers cost whose replicas wait for each other in every microbatch: the
// slowest of each counts, which the samples are of.
func (p *Profiler) couple(r *report, s *model.Stage) {
	for i, layer := range s.Layers {
		if layer.Traits.Talks {
			p.evaluate(&r.layers[i])
		}
	}
}

// with joins the report of some replicas of a stage with that of those which follow them: of
// everything the largest, but energy and counts, which add up.
func (r report) with(other report) report {
	r.own = r.own.with(other.own)
	r.summaries = append(r.summaries, other.summaries...)
	for _, c := range other.counts {
		r.counts = cost.AddCounts(r.counts, c)
	}
	for i, from := range other.layers {
		to := &r.layers[i]
		to.cost = to.cost.WithSeconds(to.cost.Stage().Max(from.cost.Stage()))
		to.value = value{to.value.Max(from.value.Stage), max(to.value.deviation, from.value.deviation)}
		for m, x := range from.samples {
			to.samples[m] = to.samples[m].Max(x)
		}
		to.work = larger(to.work, from.work)
	}
	return r
}

// with joins what two ranks report of themselves. A sum of some GPUs' energy would
// be taken for all, so that one which is not known makes the sum unknown.
func (o Own) with(other Own) Own {
	o.Resident, o.Allocated, o.Kept = max(o.Resident, other.Resident), max(o.Allocated, other.Allocated), max(o.Kept, other.Kept)
	o.Balancing = max(o.Balancing, other.Balancing)
	if o.Joules < 0 || other.Joules < 0 {
		o.Joules = -1
	} else {
		o.Joules += other.Joules
	}
	return o
}

// joinStages puts the reports of stages together on the layers of a chain.
func joinStages(clock string, names []string, rows []report) Measurement {
	m := Measurement{Memory: make([]Memory, len(rows))}
	m.Clock, m.Layers, m.Samples = clock, make([]cost.Layer, len(names)), make([][]cost.Stage, len(names))
	m.values = make([]value, len(names))
	all := rows[0].own
	for stage, r := range rows {
		if stage > 0 {
			all = all.with(r.own)
		}
		m.Memory[stage] = r.own.Memory
		m.Counts = append(m.Counts, r.counts...)
		m.Instructions = append(m.Instructions, r.instructions)
		for _, l := range r.layers {
			m.Layers[l.id], m.Samples[l.id], m.values[l.id] = l.cost, l.samples, l.value
			if l.work != nil && m.Work == nil {
				m.Work = make([][]float64, len(names))
			}
			if l.work != nil {
				m.Work[l.id] = l.work
			}
			m.Layers[l.id].Name = names[l.id]
		}
	}
	slices.SortStableFunc(m.Counts, func(a, b cost.CountSum) int { return cmp.Compare(a.Layer, b.Layer) })
	m.Joules, m.Balancing, m.Slowest = all.Joules, all.Balancing, slowest(rows)
	for d := range rows[0].summaries {
		parts := make([]trace.Summary, len(rows))
		for stage, r := range rows {
			parts[stage] = r.summaries[d]
		}
		if s := trace.Join(parts); d == 0 || s.Makespan() > m.Summary.Makespan() {
			m.Summary = s
		}
	}
	return m
}

// slowest returns by stage the replica whose rank computed longest.
func slowest(rows []report) []int {
	list := make([]int, len(rows))
	for stage, r := range rows {
		for d, s := range r.summaries {
			if s.Busy[0] > r.summaries[list[stage]].Busy[0] {
				list[stage] = d
			}
		}
	}
	return list
}

// DispatchOverhead returns the seconds from one instruction of a stage to the
// next that its host takes: on every stage a tenth of all the times between two is
// shorter, since in the others it waits; of those the median.
func DispatchOverhead(instructions [][]trace.Span) float64 {
	var least []float64
	for _, spans := range instructions {
		var between []float64
		for i, s := range spans {
			if i > 0 && s.Op.Pipeline() {
				between = append(between, max(0, s.Start-spans[i-1].End))
			}
		}
		if len(between) > 0 {
			slices.Sort(between)
			least = append(least, between[len(between)/10])
		}
	}
	return trace.Median(least)
}
