package profile

import (
	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/trace"
)

// message is values as numbers: it takes them one after the other and leaves them
// as they are, or sets them in the same order. Whole numbers are below 2^53, which a float64 holds exactly.
type message struct {
	numbers []float64
	reads   bool
}

func (m *message) float(values ...*float64) {
	for _, v := range values {
		if !m.reads {
			m.numbers = append(m.numbers, *v)
			continue
		}
		*v, m.numbers = m.numbers[0], m.numbers[1:]
	}
}

func whole[T byte | int | int64 | trace.Op](m *message, values ...*T) {
	for _, v := range values {
		x := float64(*v)
		if m.float(&x); m.reads {
			*v = T(x)
		}
	}
}

// list writes how many values a list has, and each of them, or makes and reads
// them.
func list[T any](m *message, l *[]T, each func(*message, *T)) {
	n := len(*l)
	if whole(m, &n); m.reads && n > 0 {
		*l = make([]T, n)
	}
	for i := range *l {
		each(m, &(*l)[i])
	}
}

// pack returns a value as a message.
func pack[T any](v *T, code func(*message, *T)) []byte {
	var m message
	code(&m, v)
	return comm.Pack(m.numbers)
}

// unpack returns the value of every message.
func unpack[T any](messages [][]byte, code func(*message, *T)) []T {
	list := make([]T, len(messages))
	for i, b := range messages {
		code(&message{numbers: comm.Unpack[float64](b), reads: true}, &list[i])
	}
	return list
}

// gather returns the reports of all ranks of a group. Collective.
func gather(group *comm.Group, mine report) ([]report, error) {
	rows, err := group.Allgather(pack(&mine, (*message).report))
	return unpack(rows, (*message).report), err
}

func (m *message) report(r *report) {
	whole(m, &r.own.Resident, &r.own.Kept)
	m.float(&r.own.Joules, &r.own.Balancing)
	list(m, &r.summaries, func(m *message, s *trace.Summary) {
		list(m, &s.Busy, func(m *message, x *float64) { m.float(x) })
		m.float(&s.Start, &s.End, &s.Finish)
	})
	list(m, &r.layers, func(m *message, l *layerReport) {
		c, b := &l.cost, &l.cost.Bytes
		whole(m, &l.id)
		whole(m, &c.NonZeros, &c.Output, &b.Parameters, &b.Gradients, &b.Optimizer, &b.Workspace, &b.Activations, &b.Held)
		m.float(&c.Forward, &c.BackwardInput, &c.BackwardWeight)
		m.float(&l.value.Forward, &l.value.Input, &l.value.Weight, &l.value.deviation)
		list(m, &l.samples, func(m *message, s *cost.Stage) { m.float(&s.Forward, &s.Input, &s.Weight) })
		list(m, &l.work, func(m *message, w *float64) { m.float(w) })
	})
	list(m, &r.counts, func(m *message, c *cost.Count) {
		whole(m, &c.Layer, &c.Microbatch)
		name := []byte(c.Name)
		if list(m, &name, func(m *message, b *byte) { whole(m, b) }); m.reads {
			c.Name = string(name)
		}
		list(m, &c.Values, func(m *message, v *int64) { whole(m, v) })
	})
}

func (m *message) spans(spans *[]trace.Span) {
	list(m, spans, func(m *message, s *trace.Span) {
		whole(m, &s.Op)
		whole(m, &s.Layer, &s.Chunk, &s.Microbatch)
		m.float(&s.Start, &s.End, &s.Waited)
	})
}

// instructions returns, on the first stage, the instructions of all stages of
// the replica, by stage, spans being this rank's; nil on the others. Collective
// over the stages.
func instructions(stages *comm.Group, spans []trace.Span) ([][]trace.Span, error) {
	rows, err := stages.Gather(0, pack(&spans, (*message).spans))
	if err != nil || stages.Rank() != 0 {
		return nil, err
	}
	return unpack(rows, (*message).spans), nil
}
