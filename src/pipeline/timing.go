package pipeline

import (
	"dynmo/src/device"
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
	start, end device.Event
}

// begin remembers, and shows, when something of an instruction begins, and returns
// a number for end. Events of earlier steps are used again.
func (r *Runner) begin(op trace.Op, layer int, in schedule.Instr) int {
	r.group.Post().Do(op, layer, in.Microbatch)
	n := len(r.times)
	if n < cap(r.times) {
		r.times = r.times[:n+1]
	} else {
		r.times = append(r.times, timing{})
	}
	t := &r.times[n]
	t.op, t.layer, t.in, t.tokens = op, layer, in, 0
	t.start = r.x.Stream.Record(t.start)
	return n
}

// end remembers when it ends.
func (r *Runner) end(n int) {
	r.times[n].end = r.x.Stream.Record(r.times[n].end)
}

// start remembers when the work of an instruction begins.
func (r *Runner) start(in schedule.Instr) { r.begin(in.Op, -1, in) }

// trace reads the events of a step: spans of layers, and of instructions.
func (r *Runner) trace() {
	r.spans, r.instrs = r.spans[:0], r.instrs[:0]
	for _, t := range r.times {
		span := trace.Span{
			Op: t.op, Layer: t.layer, Chunk: t.in.Chunk, Microbatch: t.in.Microbatch, Tokens: t.tokens, Start: t.start.Seconds(),
		}
		if t.op.Pipeline() && t.layer < 0 {
			span.End = span.Start
			r.instrs = append(r.instrs, span)
			continue
		}
		span.End = t.end.Seconds()
		r.spans = append(r.spans, span)
		if t.op.Pipeline() {
			r.instrs[len(r.instrs)-1].End = span.End
		}
	}
}
