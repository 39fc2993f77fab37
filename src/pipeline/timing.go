package pipeline

import (
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// timing is a span whose events have not been read yet. An instruction's, of no
// layer, has no end: it ends with its last layer, or where it starts if no layer has
// anything to do.
type timing struct {
	op         trace.Op
	layer      int
	in         schedule.Instr
	tokens     int
	expected   float64
	start, end device.Event
	again      device.Event // where a second forward ends that is planned
	planned    bool         // there is one
}

// waiting is when a pass, by its number, waited for other replicas. Its events have not
// been read yet.
type waiting struct {
	pass       int
	start, end device.Event
}

// begin remembers, and shows, when something of an instruction begins, and returns
// a number for end. Events of earlier steps are used again.
func (r *Runner) begin(op trace.Op, layer int, in schedule.Instr) int {
	r.group.Post().Do(op, layer, in.Microbatch)
	n := len(r.times)
	t := next(&r.times)
	t.op, t.layer, t.in, t.tokens, t.expected, t.planned = op, layer, in, 0, 0, false
	t.start = r.x.Stream.Record(t.start)
	return n
}

// end remembers when it ends.
func (r *Runner) end(n int) {
	r.times[n].end = r.x.Stream.Record(r.times[n].end)
}

// repeated remembers when the second forward ends with which a pass begins. What a layer costs
// does not depend on whether there is one that is planned.
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

// exchanging remembers when a pass begins, or ends, to wait for other replicas: of a step.
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

// start remembers when the work of an instruction begins.
func (r *Runner) start(in schedule.Instr) { r.begin(in.Op, -1, in) }

// trace reads the events of a step: spans of layers, and of instructions.
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
