package profile

import (
	"encoding/binary"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/trace"
)

// message encodes values as bytes, or decodes them in the same order. Encoding does not change the
// values. A whole number takes as many bytes as it needs.
type message struct {
	names []dynamic.Counts
	bytes []byte
	reads bool
}

func (m *message) float(values ...*float64) {
	for _, v := range values {
		if !m.reads {
			m.bytes = binary.LittleEndian.AppendUint64(m.bytes, math.Float64bits(*v))
			continue
		}
		*v, m.bytes = math.Float64frombits(binary.LittleEndian.Uint64(m.bytes)), m.bytes[8:]
	}
}

func whole[T byte | int | int64 | trace.Op](m *message, values ...*T) {
	for _, v := range values {
		if !m.reads {
			m.bytes = binary.AppendVarint(m.bytes, int64(*v))
			continue
		}
		x, n := binary.Varint(m.bytes)
		if n <= 0 {
			panic("profile: a message that ends inside a number")
		}
		*v, m.bytes = T(x), m.bytes[n:]
	}
}

// list encodes the length of a list and each of its values. If the message is read, list makes the
// list and decodes the values.
func list[T any](m *message, l *[]T, each func(*message, *T)) {
	n := len(*l)
	if whole(m, &n); m.reads && n > 0 {
		*l = make([]T, n)
	}
	for i := range *l {
		each(m, &(*l)[i])
	}
}

// pack encodes a value as a message. names are those of the counts in it.
func pack[T any](names []dynamic.Counts, v T, code func(*message, *T)) []byte {
	m := message{names: names}
	code(&m, &v)
	return m.bytes
}

// unpack decodes the value of a message.
func unpack[T any](names []dynamic.Counts, b []byte, code func(*message, *T)) (v T) {
	code(&message{names, b, true}, &v)
	return v
}

func (m *message) report(r *report) {
	whole(m, &r.own.Resident, &r.own.Allocated, &r.own.Kept)
	m.float(&r.own.Joules, &r.own.Balancing)
	list(m, &r.summaries, func(m *message, s *trace.Summary) {
		list(m, &s.Busy, func(m *message, x *float64) { m.float(x) })
		m.float(&s.Start, &s.End, &s.Finish)
	})
	list(m, &r.layers, func(m *message, l *layerReport) {
		c, b := &l.cost, &l.cost.Bytes
		whole(m, &l.id)
		whole(m, &c.NonZeros, &c.Output, &c.Rows, &b.Parameters, &b.Gradients, &b.Own, &b.Optimizer, &b.Workspace, &b.Activations, &b.Held, &b.Recomputed)
		m.float(&c.Forward, &c.BackwardInput, &c.BackwardWeight)
		m.float(&l.value.Forward, &l.value.Input, &l.value.Weight, &l.value.deviation)
		list(m, &l.samples, func(m *message, s *cost.Stage) { m.float(&s.Forward, &s.Input, &s.Weight) })
		list(m, &l.work, func(m *message, w *float64) { m.float(w) })
	})
	list(m, &r.counts, (*message).count)
	m.spans(&r.instructions)
}

// count encodes the name of a count as its index in names, which all ranks have in the same order.
// It panics on a name that no kind has registered.
func (m *message) count(c *cost.CountSum) {
	name := slices.IndexFunc(m.names, func(of dynamic.Counts) bool { return of.Name == c.Name })
	whole(m, &name, &c.Layer, &c.Microbatches)
	whole(m, &c.Peaks)
	list(m, &c.Values, func(m *message, v *int64) { whole(m, v) })
	c.Name = m.names[name].Name
}

func (m *message) spans(spans *[]trace.Span) {
	list(m, spans, func(m *message, s *trace.Span) {
		whole(m, &s.Op)
		whole(m, &s.Layer, &s.Chunk, &s.Microbatch)
		m.float(&s.Start, &s.End, &s.Waited)
	})
}

func (m *message) shared(s *shared) {
	list(m, &s.counts, (*message).count)
	list(m, &s.known, func(m *message, k *known) {
		m.float(&k.fixed, &k.seconds.Forward, &k.seconds.Input, &k.seconds.Weight)
	})
}

// shared is the data of a step that all ranks need in the next step.
type shared struct {
	counts []cost.CountSum
	known  []known // by layer; nil while all layers have worked on full microbatches
}

// known is the known cost of a layer that may not work on all tokens.
type known struct {
	fixed   float64    // fixed share φ of its passes: the seconds that do not depend on the number of tokens
	seconds cost.Stage // seconds of its passes on a full microbatch
}

// known returns the known costs of all layers.
func (e *estimator) known() (list []known) {
	for l, home := range e.Home {
		if e.Lines == nil {
			return nil
		}
		seconds, _ := e.lower(l, home)
		list = append(list, known{e.fixed(l), seconds})
	}
	return list
}

// of returns the known cost of a layer.
func (p *Profiler) of(layer int) known {
	if p.known == nil {
		return known{}
	}
	return p.known[layer]
}

// Share returns, on the root, the data of a step that all ranks need in the next step.
func (p *Profiler) Share(m Measurement) []byte {
	return pack(p.Counts, shared{m.Counts, p.estimator.known()}, (*message).shared)
}

// Take stores the data that Share returned on the root. It returns the counts of all layers in the
// step, ascending by layer and name.
func (p *Profiler) Take(b []byte) []cost.CountSum {
	s := unpack(p.Counts, b, (*message).shared)
	p.known = s.known
	return s.counts
}
