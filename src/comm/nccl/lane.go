//go:build cgo

package nccl

import (
	"fmt"
	"slices"
	"unsafe"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// lane is the way of messages from one rank to another, of which one is this
// rank: a communicator, in which the sender is rank 0 and the receiver rank 1,
// or, from this rank to itself, one of one rank.
type lane struct {
	c        *carrier
	from, to int
	comm     communicator
	stream   device.Stream
	queue    []operation // agreed with the other rank, not issued yet; the oldest first
	current  operation   // what NCCL was given last, until it is on the stream; else zero
	idle     []*transfer // that can be used again
}

// operation is what this rank does for one message: a send, a receipt, or, to
// itself, both.
type operation struct{ send, recv *transfer }

func (c *carrier) newLane(from, to int) *lane {
	return &lane{c: c, from: from, to: to, stream: c.device.NewStream()}
}

// fresh returns a transfer that is not in use, which begins once after has
// happened, if not nil. It is issued later, so it keeps an event of its own.
func (l *lane) fresh(sends bool, tag int, m tensor.Mem, upTo bool, after device.Event) *transfer {
	t := &transfer{lane: l}
	if last := len(l.idle) - 1; last >= 0 {
		t, l.idle = l.idle[last], l.idle[:last]
	}
	*t = transfer{lane: l, sends: sends, tag: tag, mem: m, upTo: upTo, waits: after != nil, start: t.start, event: t.event}
	if t.waits {
		l.c.gate.After(after)
		t.start = l.c.gate.Record(t.start)
	}
	return t
}

// begin begins the communicator.
func (l *lane) begin(id identity) (err error) {
	rank, ranks := 0, 2
	if l.c.rank != l.from {
		rank = 1
	}
	if l.from == l.to {
		ranks = 1
	}
	l.comm, err = begin(id, rank, ranks)
	return err
}

// push queues an operation. One without bytes is done.
func (l *lane) push(o operation) {
	t := o.send
	if t == nil {
		t = o.recv
	}
	if t.mem.Bytes > 0 {
		l.queue = append(l.queue, o)
		return
	}
	for _, t := range []*transfer{o.send, o.recv} {
		if t != nil {
			t.enqueued = true
		}
	}
}

// advance gives NCCL the queued operations, each as soon as the one before is on
// the stream: until NCCL says so an event would be recorded ahead of it.
func (l *lane) advance() error {
	for l.comm.begun() {
		ready, err := l.comm.ready()
		if err != nil || !ready {
			return err
		}
		l.settle()
		if len(l.queue) == 0 {
			return nil
		}
		l.current = l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		if err := l.issue(l.current); err != nil {
			return err
		}
	}
	return nil
}

// settle records the events of the operation that is on the stream now.
func (l *lane) settle() {
	for _, t := range []*transfer{l.current.send, l.current.recv} {
		if t != nil {
			t.event, t.enqueued = l.stream.Record(t.event), true
		}
	}
	l.current = operation{}
}

// issue gives NCCL an operation, behind the events it has to wait for.
func (l *lane) issue(o operation) error {
	for _, t := range []*transfer{o.send, o.recv} {
		if t != nil && t.waits {
			l.stream.After(t.start)
		}
	}
	handle := l.stream.(handled).Handle()
	switch {
	case o.recv == nil:
		return l.comm.send(o.send.mem, 1, handle)
	case o.send == nil:
		return l.comm.recv(o.recv.mem, 0, handle)
	}
	return l.comm.self(o.recv.mem, o.send.mem, 0, handle)
}

// handled is a stream that can tell the driver's handle, as those of a GPU can.
type handled interface{ Handle() unsafe.Pointer }

// explain says which way an error belongs to.
func (l *lane) explain(err error) error {
	from, to := l.c.t.Peer(l.from), l.c.t.Peer(l.to)
	return fmt.Errorf("nccl: from rank %d (host %s) to rank %d (host %s): %w",
		from.World, from.Host, to.World, to.Host, err)
}

// mismatch is the error of a message that does not fit what is expected, nil if it
// does.
func mismatch(tag int, sent, expected int64, upTo bool) error {
	if sent == expected || upTo && sent < expected {
		return nil
	}
	return fmt.Errorf("a message with tag %d has %d bytes, but %d are expected", tag, sent, expected)
}
