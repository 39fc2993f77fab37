package commtest

import (
	"errors"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// split returns a chain of all ranks, the last one first, whose messages of device
// memory travel in pieces of 1000 bytes, and what closes it and the group that it is split
// from.
func (r *Rank) split() (chain *comm.Group, end func() error) {
	o := quick()
	o.Piece, o.DeviceTransport = 1000, r.openWorld
	all := Value(comm.New(r.Transport, o).Split(0, -r.Rank()))
	chain = Value(all.SplitAs(comm.Chain, 0, all.Rank()))
	return chain, func() error { return errors.Join(chain.Close(), all.Close(), r.DeviceTransport.Close()) }
}

// grouped is a Group as a messenger of device memory.
type grouped struct {
	*comm.Group
	r *Rank
}

// memory returns device memory, also where it is empty.
func (g grouped) memory(bytes int64) tensor.Mem { return Value(g.r.Memory(bytes+1)).Span(0, bytes) }

func (g grouped) send(to, tag, index int, length int64) (finisher, error) {
	m := g.memory(length)
	g.r.write(m, g.Rank(), to, index)
	q, err := g.Send(to, tag, m, g.r.Compute.Record(nil))
	return &Message{g.r, q.Received, m, nil, 0}, err
}

func (g grouped) recv(from, tag, index int, length, room int64, upTo bool) (finisher, error) {
	m := g.memory(room)
	begin := g.Recv
	if upTo {
		begin = g.RecvUpTo
	}
	want := g.r.prepare(m, from, g.Rank(), index, length)
	q, err := begin(from, tag, m, g.r.Compute.Record(nil))
	return &Message{g.r, q.Received, m, want, length}, err
}

// group: a Group sends device memory in pieces and into memory that has room for
// more, and closes.
func (r *Rank) group() error {
	g, end := r.split()
	b := &batch{messenger: grouped{g, r}}
	for _, program := range []func(*batch) error{
		ring([]int64{0, 1, 999, 1000, 1001, 4000, 54321}), upTo([]int64{0, 1, 999, 1000, 500}, 999),
	} {
		Must(program(b))
	}
	return end()
}

// hostBetween: messages of host memory between those of device memory, with the
// same tag, overtake none of them.
func (r *Rank) hostBetween() error {
	const messages, length = 3, 700
	g, end := r.split()
	above, below := neighbours(g)
	inDevice, inHost := &batch{messenger: grouped{g, r}}, onGroup(g)
	for i := range messages {
		for k, b := range []*batch{inDevice, inHost} {
			b.recv(below, 5, 2*i+k, length)
			b.send(above, 5, 2*i+k, length)
		}
	}
	return errors.Join(inDevice.finish(), inHost.finish(), end())
}

// hostAnswer: a rank that waits for messages of host memory, which its neighbours send once
// they have its device memory, sends that meanwhile.
func (r *Rank) hostAnswer() error {
	const length, tag = 700, 7
	g, end := r.split()
	b := &batch{messenger: grouped{g, r}}
	others := slices.DeleteFunc(around(b), func(rank int) bool { return rank == g.Rank() })
	if g.Rank() > 0 && slices.Contains(others, 0) {
		b.recv(0, tag, 0, length)
		Must(b.finish())
		Must(g.SendBytes(0, tag, nil))
	}
	if g.Rank() > 0 {
		return end()
	}
	for _, other := range others {
		b.send(other, tag, 0, length)
	}
	for _, other := range others {
		Value(g.RecvBytes(other, tag))
	}
	return errors.Join(b.finish(), end())
}

// exchange: rounds of device memory.
func (r *Rank) exchange() error {
	g, end := r.split()
	inDevice := grouped{g, r}
	err := exchangeRounds(rounder{
		Group: g, memory: inDevice.memory, compare: r.compare,
		write: func(m tensor.Mem, data []byte) { r.Compute.Copy(m, tensor.From(data)) },
		ready: func() device.Event { return r.Compute.Record(nil) },
	})
	return errors.Join(err, end())
}
