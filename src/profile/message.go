package profile

import (
	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/trace"
)

// message is a report as the numbers of one message. Whole numbers are below
// 2^53, which a float64 holds exactly.
type message struct {
	values []float64
	read   int
}

func (m *message) put(values ...float64) { m.values = append(m.values, values...) }

func (m *message) next() float64 {
	m.read++
	return m.values[m.read-1]
}

func (m *message) count() int { return int(m.next()) }

// gather returns the reports of all ranks of a group. Collective.
func gather(group *comm.Group, mine report) ([]report, error) {
	rows, err := group.Allgather(comm.Pack(mine.encode()))
	if err != nil {
		return nil, err
	}
	list := make([]report, len(rows))
	for rank, b := range rows {
		list[rank] = decode(comm.Unpack[float64](b))
	}
	return list, nil
}

func (r report) encode() []float64 {
	var m message
	m.put(float64(r.own.Resident), float64(r.own.Kept), r.own.Joules, r.own.Balancing)
	m.put(float64(len(r.summaries)))
	for _, s := range r.summaries {
		m.put(s.Busy[0], s.Start, s.End, s.Finish)
	}
	m.put(float64(len(r.layers)))
	for _, l := range r.layers {
		b := l.cost.Bytes
		m.put(float64(l.id), float64(l.cost.NonZeros), float64(l.cost.Output))
		m.put(float64(b.Parameters), float64(b.Gradients), float64(b.Optimizer), float64(b.Workspace), float64(b.Activations), float64(b.Held))
		m.put(l.cost.Forward, l.cost.BackwardInput, l.cost.BackwardWeight, float64(len(l.samples)))
		for _, s := range l.samples {
			m.put(s.Forward, s.Input, s.Weight)
		}
	}
	m.put(float64(len(r.counts)))
	for _, c := range r.counts {
		m.put(float64(c.Layer), float64(c.Microbatch), float64(len(c.Name)), float64(len(c.Values)))
		for _, b := range []byte(c.Name) {
			m.put(float64(b))
		}
		for _, v := range c.Values {
			m.put(float64(v))
		}
	}
	return m.values
}

func decode(values []float64) report {
	m := message{values: values}
	whole := func() int64 { return int64(m.next()) }
	r := report{own: Own{Memory: Memory{Resident: whole(), Kept: whole()}, Joules: m.next(), Balancing: m.next()}}
	for range m.count() {
		r.summaries = append(r.summaries, trace.Summary{Busy: []float64{m.next()}, Start: m.next(), End: m.next(), Finish: m.next()})
	}
	for range m.count() {
		l := layerReport{id: m.count(), cost: cost.Layer{NonZeros: whole(), Output: whole()}}
		l.cost.Bytes = cost.Bytes{
			Parameters: whole(), Gradients: whole(), Optimizer: whole(), Workspace: whole(), Activations: whole(), Held: whole(),
		}
		l.cost.Forward, l.cost.BackwardInput, l.cost.BackwardWeight = m.next(), m.next(), m.next()
		l.samples = make([]cost.Stage, m.count())
		for i := range l.samples {
			l.samples[i] = cost.Stage{Forward: m.next(), Input: m.next(), Weight: m.next()}
		}
		r.layers = append(r.layers, l)
	}
	for range m.count() {
		c := cost.Count{Layer: m.count(), Microbatch: m.count()}
		name := make([]byte, m.count())
		c.Values = make([]int64, m.count())
		for i := range name {
			name[i] = byte(m.next())
		}
		for i := range c.Values {
			c.Values[i] = whole()
		}
		c.Name = string(name)
		r.counts = append(r.counts, c)
	}
	return r
}

// instructions returns, on the first stage, the instructions of all stages of
// the replica, by stage, spans being this rank's; nil on the others. Collective
// over the stages.
func instructions(stages *comm.Group, spans []trace.Span) ([][]trace.Span, error) {
	var mine message
	for _, s := range spans {
		mine.put(float64(s.Op), float64(s.Chunk), float64(s.Microbatch), s.Start, s.End)
	}
	rows, err := stages.Gather(0, comm.Pack(mine.values))
	if err != nil || stages.Rank() != 0 {
		return nil, err
	}
	all := make([][]trace.Span, len(rows))
	for stage, b := range rows {
		for m := (message{values: comm.Unpack[float64](b)}); m.read < len(m.values); {
			all[stage] = append(all[stage], trace.Span{
				Op: trace.Op(m.next()), Layer: -1, Chunk: m.count(), Microbatch: m.count(), Start: m.next(), End: m.next(),
			})
		}
	}
	return all, nil
}
