package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// recorder writes the record of a simulated run. A nil recorder, as without Options.Observe, writes
// nothing.
type recorder struct {
	Options
	*record.Journal
	elapsed float64         // simulated seconds since the run began
	problem *search.Problem // of the layout of held
	held    told            // steps that are not written yet, because the next ones may be equal
}

// recorder returns the recorder of a run.
func (o Options) recorder() *recorder {
	if o.Observe == nil {
		return nil
	}
	hosts := make([]string, o.Config.Parallel.Stages*o.Config.Parallel.Replicas)
	for rank := range hosts {
		hosts[rank] = "node0"
	}
	for rank, node := range o.nodes() {
		hosts[rank] = fmt.Sprintf("node%d", node)
	}
	j := record.NewJournal(o.Observe, o.Config, record.Simulated, hosts)
	n := o.Network
	links := record.Course{Latency: n.Node.Latency, Bandwidth: n.Node.Bandwidth, DelayMost: n.Delay.Most, Seed: n.Delay.Seed}
	if n.PerNode > 0 {
		links.Between = &record.Between{PerNode: n.PerNode, Latency: n.Between.Latency, Bandwidth: n.Between.Bandwidth}
	}
	j.SetNetwork(links)
	return &recorder{o, j, 0, nil, told{}}
}

// changed records a change of the model.
func (r *recorder) changed(step int, kind string) error {
	if r == nil {
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	return r.Changed(step, record.Change{Kind: kind, Text: dynamic.ChangeText(kind, nil)})
}

// end completes the record.
func (r *recorder) end() error {
	if r == nil {
		return nil
	}
	return cmp.Or(r.flush(), r.End())
}

// told has the result of simulating some equal steps.
type told struct {
	step, steps      int
	costs            cost.Phase
	of               *Segment
	ran, next        layout.Layout
	why              plan.Reason
	moved            layout.Moved
	deciding, moving float64 // seconds after each step: measuring and deciding, then moving
}

// plain reports whether nothing is decided after the steps.
func (t told) plain() bool {
	return !t.why.Decided && t.why.Pack == nil && t.why.Placed == nil && t.why.Full == nil && t.next.Equal(t.ran)
}

// write records steps. p is the problem of their layout. Equal steps with nothing to tell between
// them are one line.
func (r *recorder) write(p *search.Problem, t told) error {
	if r == nil {
		return nil
	}
	if h := &r.held; h.of == t.of && h.step+h.steps == t.step && h.plain() && t.plain() && h.deciding == t.deciding && h.moving == t.moving {
		h.steps += t.steps
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	if r.problem, r.held = p, t; !t.plain() {
		return r.flush()
	}
	return nil
}

// flush writes the steps that are held.
func (r *recorder) flush() error {
	p, t := r.problem, r.held
	if r.held = (told{}); t.of == nil {
		return nil
	}
	s := t.of.Plan.Step.Summary
	s.End, s.Finish = s.Start+t.of.Makespan, s.Start+t.of.Seconds
	d := record.Done{
		Step: t.step, Steps: t.steps, Loss: math.NaN(), Norm: math.NaN(), LR: math.NaN(),
		Costs: cost.Measurement{Table: t.costs.Table}, Model: search.Shape(p.Config), Analysis: t.of.Plan.Analysis,
		Summary: s,
		Ran:     t.ran, Next: t.next, Why: t.why, Moved: t.moved, Start: s.Start, Deciding: t.deciding, Moving: t.moving,
	}
	if r.Network.Slow != nil {
		d.Costs.Slow = make([]float64, t.ran.Stages())
		for rank := range t.ran.Mesh.Size() {
			stage := t.ran.Mesh.Stage(rank)
			d.Costs.Slow[stage] = max(d.Costs.Slow[stage], r.Network.Slowness(t.ran.World(rank)))
		}
	}
	if r.Config.Run.TraceSteps > 0 {
		d.Instructions = later(t.of.Plan.Step.Spans, r.elapsed-s.Start)
	}
	d.Analysis.Idle = t.of.Idle
	d.Analysis.Took = slices.Clone(d.Analysis.Took)
	for v, row := range d.Analysis.Took {
		d.Analysis.Took[v] = slices.Clone(row) // the journal divides them by the costs of the phase
	}
	r.elapsed += float64(t.steps) * (t.of.Seconds + t.deciding + t.moving)
	d.Elapsed = r.elapsed
	return r.Step(d)
}

// later returns spans moved by some seconds.
func later(stages [][]trace.Span, seconds float64) [][]trace.Span {
	list := make([][]trace.Span, len(stages))
	for stage, spans := range stages {
		list[stage] = slices.Clone(spans)
		for i := range spans {
			list[stage][i].Start += seconds
			list[stage][i].End += seconds
		}
	}
	return list
}
