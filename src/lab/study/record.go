package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// recorder writes the record of a simulated run. Equal steps with nothing to tell between them are one
// line.
type recorder struct {
	*record.Journal
	slowness func(rank int) float64 // nil: all ranks are equally fast
	run      *Run
	traces   int         // number of timelines to record
	elapsed  float64     // simulated seconds since the run began
	held     record.Done // steps that are not written yet, because the next ones may be equal
	of       *step       // of held; nil: there are none
}

// recorder returns the recorder of a run.
func (o Options) recorder(run *Run) *recorder {
	hosts := slices.Repeat([]string{"node0"}, o.Config.Parallel.Stages*o.Config.Parallel.Replicas)
	for rank, node := range o.nodes() {
		hosts[rank] = fmt.Sprintf("node%d", node)
	}
	var to record.Observer = run
	if o.Observe != nil {
		to = both{run, o.Observe}
	}
	r := &recorder{Journal: record.NewJournal(to, o.Config, record.Simulated, hosts), run: run, traces: o.Config.Run.TraceSteps}
	n := o.Network
	links := record.Course{Latency: n.Node.Latency, Bandwidth: n.Node.Bandwidth, DelayMost: n.Delay.Most, Seed: n.Delay.Seed}
	if n.PerNode > 0 {
		links.Between = &record.Between{PerNode: n.PerNode, Latency: n.Between.Latency, Bandwidth: n.Between.Bandwidth}
	}
	r.SetNetwork(links)
	if n.Slow != nil {
		r.slowness = n.Slowness
	}
	return r
}

// changed records a change of the model; kind is "" for none.
func (r *recorder) changed(step int, kind string) error {
	return cmp.Or(r.flush(), r.Changed(step, record.Change{Kind: kind, Text: dynamic.ChangeText(kind, nil)}))
}

// end completes the record.
func (r *recorder) end() error { return cmp.Or(r.flush(), r.End()) }

// plain reports whether nothing is decided after the steps.
func plain(d record.Done) bool {
	return !d.Why.Decided && d.Why.Pack == nil && d.Why.Placed == nil && d.Why.Full == nil && d.Next.Equal(d.Ran)
}

// write records steps that are like the step s.
func (r *recorder) write(s *step, d record.Done) error {
	if h := &r.held; r.of == s && h.Step+h.Steps == d.Step && plain(*h) && plain(d) && h.Deciding == d.Deciding && h.Moving == d.Moving {
		h.Steps += d.Steps
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	if r.of, r.held = s, d; !plain(d) {
		return r.flush()
	}
	return nil
}

// flush writes the steps that are held.
func (r *recorder) flush() error {
	s, d := r.of, r.held
	if r.of = nil; s == nil {
		return nil
	}
	none := math.NaN()
	d.Loss, d.Norm, d.LR = none, none, none
	d.Measured = record.Measured{Measurement: cost.Measurement{Table: s.costs}, Summary: s.summary}
	d.Model, d.Analysis, d.Start = s.model, s.Analysis, s.summary.Start
	if r.slowness != nil {
		d.Measured.Slow = make([]float64, d.Ran.Stages())
		for rank := range d.Ran.Mesh.Size() {
			stage := d.Ran.Mesh.Stage(rank)
			d.Measured.Slow[stage] = max(d.Measured.Slow[stage], r.slowness(d.Ran.World(rank)))
		}
	}
	if len(r.run.Timelines) < r.traces {
		d.Measured.Instructions = later(s.Step.Spans, r.elapsed-d.Start)
	}
	d.Analysis.Took = slices.Clone(s.Took)
	for v, row := range s.Took {
		d.Analysis.Took[v] = slices.Clone(row) // the journal divides them by the costs of the phase
	}
	r.elapsed += float64(d.Steps) * (s.summary.Finish - d.Start + d.Deciding + d.Moving)
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
