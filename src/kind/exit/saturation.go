package exit

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
	"math"
)

// saturation says that a token may leave by the cosine between its state behind a block
// and behind the block before (Schuster et al. 2022, section 3.5).
const saturation = "saturation"

// pair is the parts of a whole block in front of an exit that looks for saturation: it
// passes on, for the tokens that are there, their states behind the block (n, C), then
// those that entered it. Only the former have a gradient.
type pair struct {
	model.Basic
	parts  []model.Part
	hidden int
}

func (p *pair) Params() (list []*model.Param) {
	for _, q := range p.parts {
		list = append(list, q.Params()...)
	}
	return list
}

func (p *pair) Readings() (list []model.Reading) {
	for _, q := range p.parts {
		list = append(list, q.Readings()...)
	}
	return list
}

func (p *pair) Reading(x *model.Exec, b *model.Batch, saved tensor.Mem, i int) tensor.Mem {
	m, _, _ := p.cut(x, b, saved, tensor.Mem{})
	for k, q := range p.parts {
		n := len(q.Readings())
		if i < n {
			return q.Reading(x, b.OfPart(k), m.saved[k], i)
		}
		i -= n
	}
	panic("model: a reading that no part has")
}

// Tuned returns the numbers of the parts.
func (p *pair) Tuned() (list []*float64) {
	for _, q := range p.parts {
		list = append(list, q.Tuned()...)
	}
	return list
}

func (p *pair) Traits() model.Traits { return model.TraitsOf(p.parts) }

func (p *pair) NewWork(x *model.Exec, room model.Room) model.Work {
	return model.WorkOf(x, p.parts, room)
}

func (p *pair) Leaves() model.Width { return model.Width{Values: 2 * p.hidden} }

// pairMemory is the memory of the parts, and what passes between them.
type pairMemory struct {
	saved, held [model.MostParts]tensor.Mem
	out, grad   [model.MostParts]tensor.Mem // by part: its output and, except for the last, the output's gradient
	both        tensor.Mem                  // what leaves
}

func (p *pair) cut(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (m pairMemory, savedBytes, heldBytes int64) {
	for i, q := range p.parts {
		m.saved[i], m.held[i] = behind(saved, savedBytes), behind(held, heldBytes)
		var s, h int64
		m.out[i], s, h = q.Memory(x, b.OfPart(i), m.saved[i], m.held[i])
		savedBytes, heldBytes = savedBytes+s, heldBytes+h
		if i < len(p.parts)-1 {
			c := x.Cut(b, behind(held, heldBytes))
			m.grad[i] = c.Rows(p.hidden, x.Backend.DType())
			heldBytes += c.Off
		}
	}
	c := x.Cut(b, behind(saved, savedBytes))
	m.both = c.Boundary(x, p.Leaves())
	return m, savedBytes + c.Off, heldBytes
}

// rest returns what is left of memory behind its first bytes; absent if it is.
func behind(m tensor.Mem, bytes int64) tensor.Mem {
	if m.IsZero() {
		return m
	}
	return m.Span(bytes, m.Bytes-bytes)
}

// half returns the first half of memory; absent if it is.
func half(m tensor.Mem) tensor.Mem {
	if m.IsZero() {
		return m
	}
	return m.Span(0, m.Bytes/2)
}

func (p *pair) Memory(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	m, savedBytes, heldBytes := p.cut(x, b, saved, held)
	return m.both, savedBytes, heldBytes
}

// entering returns what enters a part.
func (m *pairMemory) entering(part int, inp tensor.Mem) tensor.Mem {
	if part == 0 {
		return inp
	}
	return m.out[part-1]
}

// leaving returns the gradient of what leaves a part.
func (p *pair) leaving(m *pairMemory, part int, dout tensor.Mem) tensor.Mem {
	if part == len(p.parts)-1 {
		return half(dout)
	}
	return m.grad[part]
}

func (p *pair) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	m, _, _ := p.cut(x, b, saved, tensor.Mem{})
	for i, q := range p.parts {
		if model.Idles(q, b) {
			continue
		}
		if err := q.Forward(x, b.OfPart(i), m.saved[i], m.entering(i, inp)); err != nil {
			return err
		}
	}
	state := half(m.both)
	x.Stream.Copy(state, m.out[len(p.parts)-1])
	x.Stream.Copy(m.both.Span(state.Bytes, state.Bytes), inp)
	return nil
}

func (p *pair) BackwardInput(x *model.Exec, b *model.Batch, saved, held, inp, dout, din tensor.Mem) error {
	m, _, _ := p.cut(x, b, saved, held)
	for i := len(p.parts) - 1; i >= 0; i-- {
		if model.Idles(p.parts[i], b) {
			continue
		}
		to := din
		if i > 0 {
			to = m.grad[i-1]
		}
		if err := p.parts[i].BackwardInput(x, b.OfPart(i), m.saved[i], m.held[i], m.entering(i, inp), p.leaving(&m, i, dout), to); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, inp, dout tensor.Mem) error {
	m, _, _ := p.cut(x, b, saved, held)
	for i := len(p.parts) - 1; i >= 0; i-- {
		if model.Idles(p.parts[i], b) {
			continue
		}
		if err := p.parts[i].BackwardWeight(x, b.OfPart(i), m.saved[i], m.held[i], m.entering(i, inp), p.leaving(&m, i, dout)); err != nil {
			return err
		}
	}
	return nil
}

// saturate notes the confidence of every token that has not left: inp is the states
// of all behind the block, then those in front of it.
func (d *departure) saturate(x *model.Exec, b *model.Batch, inp tensor.Mem) error {
	if d.states == nil {
		d.states = make([]byte, inp.Bytes/int64(b.Tokens)*int64(x.N()))
	}
	behind, front := half(inp), inp.Span(inp.Bytes/2, inp.Bytes/2)
	each := b.QueryRows(behind).Bytes
	states := d.states[:2*each]
	x.Stream.Copy(tensor.From(states[:each]), b.QueryRows(behind))
	x.Stream.Copy(tensor.From(states[each:]), b.QueryRows(front))
	if err := x.Stream.Sync(); err != nil {
		return err
	}
	switch host := tensor.From(states); x.Backend.DType() {
	case tensor.F64:
		cosines(d.confidence[:d.came], tensor.Of[float64](host), func(v float64) float64 { return v })
	case tensor.BF16:
		cosines(d.confidence[:d.came], tensor.Of[uint16](host), func(v uint16) float64 { return float64(tensor.FromBF16(v)) })
	default:
		cosines(d.confidence[:d.came], tensor.Of[float32](host), func(v float32) float64 { return float64(v) })
	}
	return nil
}

// cosines sets those between the rows of the two halves of states, 0 where a row is.
func cosines[T any](out []float64, states []T, wide func(T) float64) {
	n, width := len(states)/2, len(states)/2/len(out)
	for i := range out {
		a, b := states[i*width:][:width], states[n+i*width:][:width]
		var ab, aa, bb float64
		for k := range a {
			v, w := wide(a[k]), wide(b[k])
			ab, aa, bb = ab+v*w, aa+v*v, bb+w*w
		}
		if out[i] = 0; aa > 0 && bb > 0 {
			out[i] = ab / math.Sqrt(aa*bb)
		}
	}
}
