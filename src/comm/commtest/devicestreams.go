package commtest

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// slowBytes is the length of a copy that keeps a stream of an emulated GPU busy
// for milliseconds: streams without an order between them then lose it.
const slowBytes = 8 << 20

// slow enqueues such a copy within m, which is twice as long.
func (r *Rank) slow(m tensor.Mem) {
	r.Compute.Copy(m.Span(0, slowBytes), m.Span(slowBytes, slowBytes))
}

// memories returns device memory of these lengths.
func (r *Rank) memories(lengths ...int64) []tensor.Mem {
	all := make([]tensor.Mem, len(lengths))
	for i, length := range lengths {
		all[i] = Value(r.Memory(length))
	}
	return all
}

// streamOrder: the streams keep the order of what goes round a ring.
func (r *Rank) streamOrder() error {
	above, below := r.Neighbours()
	Must(r.inOrder(above, below))
	return r.DeviceTransport.Close()
}

// oneWay: the same from the first rank to the last, whose other messages do not
// depend on the ones it has received.
func (r *Rank) oneWay() error {
	to, from := noRank, noRank
	last := r.Size() - 1
	if r.Rank() == 0 {
		to = last
	}
	if r.Rank() == last {
		from = 0
	}
	Must(r.inOrder(to, from))
	return r.DeviceTransport.Close()
}

// noRank is the neighbour of a rank that has none.
const noRank = -1

// inOrder sends messages to a rank and receives as many from another. One buffer on each side
// serves all of them. The host waits for no work of the device, and one event is recorded again and
// again.
func (r *Rank) inOrder(to, from int) error {
	const messages, length = 8, 300_000
	m := r.memories(length, length, messages*length, messages*length, 2*slowBytes)
	out, in, source, sink, slow := m[0], m[1], m[2], m[3], m[4]
	part := func(m tensor.Mem, i int) tensor.Mem { return m.Span(int64(i*length), length) }
	for i := range messages {
		r.write(part(source, i), r.Rank(), to, i)
	}
	var event device.Event
	for i := range messages {
		var handles []comm.Handle
		r.slow(slow) // work that needs no order is ahead
		if from != noRank {
			event = r.Compute.Record(event) // behind the copy of the message before
			recv := Value(r.DeviceTransport.Recv(from, i, in, false, event))
			handles = append(handles, recv)
		}
		if to != noRank {
			r.Compute.Copy(out, part(source, i))
			event = r.Compute.Record(event)
			send := Value(r.DeviceTransport.Send(to, i, out, event))
			handles = append(handles, send)
		}
		Must(Wait(handles...))
		r.slow(slow)
		r.Compute.Copy(part(sink, i), in)
	}
	if from == noRank {
		return r.Compute.Sync()
	}
	for i := range messages {
		if err := r.compare(part(sink, i), pattern(from, r.Rank(), i, length)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// eventAgain: many messages wait for one event that is recorded again and again,
// each for the recording before it was begun. The last recording is behind all of
// them, and none may wait for that.
func (r *Rank) eventAgain() error {
	const messages, length = 6, 4000
	above, below := r.Neighbours()
	slow := Value(r.Memory(2 * slowBytes))
	var event device.Event
	var handles []comm.Handle
	var received [messages]tensor.Mem
	for i := range messages {
		both := r.memories(length, length)
		out, in := both[0], both[1]
		r.slow(slow)
		r.write(out, r.Rank(), above, i)
		r.Compute.Zero(in) // late, and yet ahead of the message
		event = r.Compute.Record(event)
		received[i] = in
		handles = r.swap(handles, i, out, in, event)
	}
	r.slow(slow)
	r.Compute.Record(event)
	Must(Wait(handles...))
	for i, m := range received {
		if err := r.compare(m, pattern(below, r.Rank(), i, length)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return r.DeviceTransport.Close()
}

// swap begins to receive from the rank below and to send to the rank above.
func (r *Rank) swap(handles []comm.Handle, tag int, out, in tensor.Mem, after device.Event) []comm.Handle {
	above, below := r.Neighbours()
	recv := Value(r.DeviceTransport.Recv(below, tag, in, false, after))
	send := Value(r.DeviceTransport.Send(above, tag, out, after))
	return append(handles, recv, send)
}

// steadyRing: after the first rounds a transport allocates nothing of the device,
// and when it is closed it holds no host memory.
func (r *Rank) steadyRing() error {
	const first, rounds = 2, 10
	lengths := []int64{8, 70_000, 4096, 0, 70_000}
	outs := r.memories(lengths...)
	ins := r.memories(lengths...)
	before := 0
	for round := range first + rounds {
		if round == first {
			before = r.counter.allocations
		}
		var handles []comm.Handle
		for i := range lengths {
			handles = r.swap(handles, i, outs[i], ins[i], nil)
		}
		Must(Wait(handles...))
		Must(r.Compute.Sync())
	}
	if more := r.counter.allocations - before; more > 0 {
		return fmt.Errorf("%d allocations in %d rounds that were as those before", more, rounds)
	}
	Must(r.DeviceTransport.Close())
	if r.counter.blocks != 0 {
		return fmt.Errorf("%d blocks of host memory are held by a transport that is closed", r.counter.blocks)
	}
	return nil
}
