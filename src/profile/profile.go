// Package profile turns the traces of all ranks into one measurement of a step, and measurements
// into the phases of a run. The input is the spans of each rank. The output, on the first rank, is
// the cost of each layer and the use of the stages.
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

// Own is the data that a rank reports about itself besides its spans.
type Own struct {
	trace.Memory
	Joules    float64 // since the run began; -1 if not known
	Balancing float64 // seconds after the previous step: measuring, deciding, moving
}

// Measurement is the result of measuring a step. Only the root has it (see Profiler).
type Measurement struct {
	cost.Measurement                // for a rank of speed 1; Slow has the slowness of stages
	Estimate         cost.Estimate  // from this step and the earlier steps with the same model
	Changed          bool           // whether the model changed before the step
	Summary          trace.Summary  // of the slowest replica
	Memory           []trace.Memory // by stage: the largest of the replicas
	Joules           float64        // of all ranks; -1 if it is not known on some rank
	Balancing        float64        // the largest of all ranks
	// Paces is by stage the time of the step divided by that of the fastest stage at its best, for
	// the same work. Slowest is by stage the replica whose rank computed longest.
	Paces   []float64
	Slowest []int

	// Instructions is by stage the work of the first replica, one span for each instruction in
	// order.
	Instructions [][]trace.Span

	values []value // by layer; nil until they are computed from the samples
	forget bool    // costs of steps before this one are no longer valid
}

// Profiler measures steps. The root is the first stage of the first replica. The profiler of the
// root remembers earlier costs of layers and the speeds of ranks.
type Profiler struct {
	Stages, Replicas *comm.Group      // of this rank: stages of its replica, replicas of its stage
	Counts           []dynamic.Counts // everything that layers may count, the same on every rank
	estimator        estimator
	known            []known // see shared
}

// root reports whether this rank receives the measurements of all ranks.
func (p *Profiler) root() bool { return p.Stages.Rank() == 0 && p.Replicas.Rank() == 0 }

// Measure returns, on the root, the measurements of all ranks in a step of a layout. Other ranks
// get an empty result. change is the change of the model before the step. Reports pass up a tree
// over the replicas of each stage, which joins them, and then over the stages. Collective over
// both.
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

// Observe adds a step's measurement to the estimator. It returns the measurement with the costs of
// layers and the speeds of ranks, estimated from this step and those before it. change is the
// change of the model before the step.
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

// report is the message of a rank, or of a stage with all its replicas, to the root.
type report struct {
	own          Own
	summaries    []trace.Summary // by replica
	layers       []layerReport
	counts       []cost.CountSum
	instructions []trace.Span // of the first replica; empty until its replicas are joined
}

// layerReport is the measured cost of a layer.
type layerReport struct {
	id      int
	cost    cost.Layer
	value   value
	samples []cost.Stage // by microbatch of the replica
	work    []float64    // share of the tokens by microbatch; nil: all tokens
}

// local adds this rank's spans of layers to a report.
func (p *Profiler) local(r *report, x *model.Exec, s *model.Stage, spans []trace.Span, l layout.Layout) {
	index := make(map[int]int, len(s.Layers)) // of a layer ID: its index in r.layers
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

// evaluate computes the cost of a layer from its samples.
func (p *Profiler) evaluate(l *layerReport) {
	var medians cost.Stage
	l.value, medians = evaluate(l.samples, p.of(l.id).fixed, l.work)
	l.cost = l.cost.WithSeconds(medians)
}

// couple computes the costs of layers whose replicas wait for each other in every microbatch. The
// samples of such a layer are those of its slowest replica.
func (p *Profiler) couple(r *report, s *model.Stage) {
	for i, layer := range s.Layers {
		if layer.Traits.Talks {
			p.evaluate(&r.layers[i])
		}
	}
}

// with joins the report of some replicas of a stage with that of the next replicas. It takes the
// largest of each value; energy and counts are added.
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

// with joins the data that two ranks report about themselves. If the energy of a GPU is unknown the
// sum is unknown, because a partial sum would be taken for the whole.
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

// joinStages joins the reports of all stages into one measurement, by layer of the chain.
func joinStages(clock string, names []string, rows []report) Measurement {
	m := Measurement{Memory: make([]trace.Memory, len(rows))}
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

// DispatchOverhead returns the seconds that a host takes from one instruction of a stage to the
// next. On every stage it takes the lowest decile of the times between two instructions, because in
// longer ones the stage waits. The result is the median over the stages.
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
