package pipeline

import (
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// timing is a span whose events have not been read yet. The timing of an instruction has layer -1 and no
// end: the instruction ends with its last pass, or at its start if it has no pass.
type timing struct {
	op         trace.Op
	layer      int
	in         schedule.Instr
	tokens     int
	expected   float64
	start, end device.Event
	again      device.Event // end of the second forward in a pass, where the planner decides which layers recompute
	planned    bool         // whether again is set
}

// waiting is a wait for other replicas in a pass, whose index in times is pass. Its events have not been
// read yet.
type waiting struct {
	pass       int
	start, end device.Event
}

// begin records the begin of a pass, an instruction or a sum, also on the rank's board. It returns the
// number that end takes. Events of earlier steps are used again.
func (r *Runner) begin(op trace.Op, layer int, in schedule.Instr) int {
	r.group.Post().Do(op, layer, in.Microbatch)
	n := len(r.times)
	t := next(&r.times)
	t.op, t.layer, t.in, t.tokens, t.expected, t.planned = op, layer, in, 0, 0, false
	t.start = r.x.Stream.Record(t.start)
	return n
}

// end records the end of what begin numbered n.
func (r *Runner) end(n int) {
	r.times[n].end = r.x.Stream.Record(r.times[n].end)
}

// repeated records the end of the second forward at the begin of pass n, if the planner decides which
// layers recompute. A layer's cost must not depend on that decision, so trace leaves it out.
func (r *Runner) repeated(n int) {
	if t := &r.times[n]; r.s.Config.Recompute == model.RecomputePlanned {
		t.again, t.planned = r.x.Stream.Record(t.again), true
	}
}

// next adds an element to a list. It reuses the element that an earlier, longer list had there.
func next[T any](list *[]T) *T {
	n := len(*list)
	if n == cap(*list) {
		var zero T
		*list = append(*list, zero)
	}
	*list = (*list)[:n+1]
	return &(*list)[n]
}

// exchanging records that a pass of a step begins, or ends, to wait for other replicas.
func (r *Runner) exchanging(begin bool) {
	switch {
	case !r.passing:
	case begin:
		w := next(&r.waits)
		w.pass = len(r.times) - 1
		w.start = r.x.Stream.Record(w.start)
	default:
		w := &r.waits[len(r.waits)-1]
		w.end = r.x.Stream.Record(w.end)
	}
}

// start records the begin of an instruction's work.
func (r *Runner) start(in schedule.Instr) { r.begin(in.Op, -1, in) }

// trace reads the events of a step and sets r.spans and r.instrs.
func (r *Runner) trace() {
	r.spans, r.instrs = r.spans[:0], r.instrs[:0]
	waits, sums := r.waits, 0.0 // seconds of sums over replicas since the newest pass
	for n, t := range r.times {
		span := trace.Span{
			Op: t.op, Layer: t.layer, Chunk: t.in.Chunk, Microbatch: t.in.Microbatch, Tokens: t.tokens, Expected: t.expected, Start: t.start.Seconds(),
		}
		if t.op.Pipeline() && t.layer < 0 {
			span.End, sums = span.Start, 0
			r.instrs = append(r.instrs, span)
			continue
		}
		span.End = t.end.Seconds()
		for ; len(waits) > 0 && waits[0].pass == n; waits = waits[1:] {
			span.Waited += waits[0].end.Seconds() - waits[0].start.Seconds()
		}
		r.spans = append(r.spans, span)
		if !t.op.Pipeline() {
			sums += span.Seconds()
			continue
		}
		in := &r.instrs[len(r.instrs)-1]
		in.End, in.Waited, sums = span.End, in.Waited+span.Waited+sums, 0
		if t.planned {
			r.spans[len(r.spans)-1].Waited += t.again.Seconds() - t.start.Seconds()
		}
	}
}
