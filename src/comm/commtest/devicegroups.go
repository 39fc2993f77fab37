package commtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// split returns a chain of all ranks, the last one first, whose messages of device memory travel in
// pieces of 1000 bytes. end closes the chain and the group that it is split from.
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

// storm: messages to neighbours in both directions and rounds of all ranks arrive while the compute
// stream is busy. Each rank begins messages in an order of its own, and rounds in one order.
func (r *Rank) storm() error {
	const messages, rounds = 12, 4
	g, end := r.split()
	inDevice := grouped{g, r}
	b := &batch{messenger: inDevice}
	slow := Value(r.Memory(2 * slowBytes))
	rnd := rand.New(rand.NewPCG(7, uint64(g.Rank()))) // fixed: a failure must repeat
	var begin []func()
	for _, peer := range around(g) {
		for i := range messages {
			length := int64(1) << (i % 3 * 7)
			begin = append(begin, func() { b.send(peer, i, i, length) }, func() { b.recv(peer, i, i, length) })
		}
	}
	rnd.Shuffle(len(begin), func(i, j int) { begin[i], begin[j] = begin[j], begin[i] })
	var all [rounds]comm.Round
	var received [rounds][]comm.Part
	for i, next := range begin {
		if share := len(begin) / rounds; i%share == 0 && i/share < rounds {
			r.slow(slow)
			all[i/share], received[i/share] = r.toAll(inDevice, 1000+i/share)
		}
		next()
	}
	if err := b.finish(); err != nil {
		return err
	}
	for i := range rounds {
		Must(all[i].Wait())
		for _, p := range received[i] {
			if err := r.compare(p.Mem, pattern(p.Rank, g.Rank(), 1000+i, p.Mem.Bytes)); err != nil {
				return fmt.Errorf("round %d, from rank %d: %w", i, p.Rank, err)
			}
		}
	}
	return end()
}

// toAll begins a round in which every rank sends a pattern to every other.
func (r *Rank) toAll(g grouped, index int) (comm.Round, []comm.Part) {
	const length = 3000
	var sends, recvs []comm.Part
	for other := range g.Size() {
		if other != g.Rank() {
			m := g.memory(length)
			r.write(m, g.Rank(), other, index)
			sends = append(sends, comm.Part{Rank: other, Mem: m})
			recvs = append(recvs, comm.Part{Rank: other, Mem: g.memory(length)})
		}
	}
	return Value(g.Exchange(comm.TagReduce, sends, recvs, r.Compute.Record(nil))), recvs
}

// leave: groups are split off groups, each time without the last rank, until each rank is alone.
// The larger groups are closed before anything goes on.
func (r *Rank) leave() error {
	o := quick()
	o.DeviceTransport = r.openWorld
	base := comm.New(r.Transport, o)
	all := Value(base.Split(0, base.Rank()))
	for size := all.Size(); ; size-- {
		chain := Value(all.SplitAs(comm.Chain, 0, all.Rank()))
		row := Value(all.SplitAs(comm.Row, all.Rank()%2, all.Rank()))
		Must(ring([]int64{8, 5000})(&batch{messenger: grouped{chain, r}}))
		round, recvs := r.toAll(grouped{row, r}, size)
		Must(round.Wait())
		for _, p := range recvs {
			Must(r.compare(p.Mem, pattern(p.Rank, row.Rank(), size, p.Mem.Bytes)))
		}
		color := 0
		if all.Rank() == size-1 && size > 1 {
			color = comm.Outside
		}
		if size == 2 {
			color = all.Rank() // each alone
		}
		var next *comm.Group
		if size > 1 {
			next = Value(all.Split(color, all.Rank()))
		}
		Must(errors.Join(chain.Close(), row.Close(), all.Close()))
		if next == nil {
			return r.DeviceTransport.Close()
		}
		all = next
	}
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
