//go:build cgo

package nccl

import (
	"fmt"
	"slices"
	"unsafe"

	"dynmo/src/device"
)

// channel takes messages from one rank to another, of which one is this rank. It
// is a communicator, in which the sender is rank 0 and the receiver rank 1, or,
// from this rank to itself, one of one rank, and a stream.
type channel struct {
	route
	d       *transport
	comm    communicator
	stream  device.Stream
	queue   []operation // agreed with the other rank, not issued yet; the oldest first
	current operation   // the last issued, until NCCL has put it on the stream; else zero
	idle    []*transfer // that can be used again
}

// operation is this rank's part in one message: a send, a receive, or, to itself,
// both.
type operation struct{ send, recv *transfer }

func (c *channel) base() *channel { return c }
func (c *channel) quiet() bool    { return len(c.queue) == 0 && c.current == operation{} }

// newTransfer returns a transfer as wanted, which begins once after has happened, if
// not nil. It is issued later than after may be recorded again, so it has an event
// of its own.
func (c *channel) newTransfer(wanted transfer, after device.Event) *transfer {
	var t *transfer
	if last := len(c.idle) - 1; last >= 0 {
		t, c.idle = c.idle[last], c.idle[:last]
	} else {
		t = new(transfer)
	}
	wanted.channel, wanted.waits, wanted.start, wanted.event = c, after != nil, t.start, t.event
	*t = wanted
	if t.waits {
		c.d.gate.After(after)
		t.start = c.d.gate.Record(t.start)
	}
	return t
}

// begin begins the communicator.
func (c *channel) begin(id identity) (err error) {
	rank, ranks := 0, 2
	if c.d.rank != c.from {
		rank = 1
	}
	if c.from == c.to {
		ranks = 1
	}
	c.comm, err = begin(id, rank, ranks)
	return err
}

// destroy frees the channel, which is finished.
func (c *channel) destroy() error {
	err := c.comm.destroy()
	c.comm = communicator{}
	c.stream.Close()
	return err
}

// push queues an operation. One without bytes is done.
func (c *channel) push(o operation) {
	t := o.send
	if t == nil {
		t = o.recv
	}
	if t.mem.Bytes > 0 {
		c.queue = append(c.queue, o)
		return
	}
	for _, t := range []*transfer{o.send, o.recv} {
		if t != nil {
			t.enqueued = true
		}
	}
}

// advance issues the queued operations, each once the one before is on the stream:
// until then an event would be recorded ahead of it.
func (c *channel) advance() error {
	for c.comm.begun() {
		ready, err := c.comm.ready()
		if err != nil || !ready {
			return err
		}
		c.settle()
		if len(c.queue) == 0 {
			return nil
		}
		c.current = c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		if err := c.issue(c.current); err != nil {
			return err
		}
	}
	return nil
}

// settle records the events of the operation that has got onto the stream.
func (c *channel) settle() {
	for _, t := range []*transfer{c.current.send, c.current.recv} {
		if t != nil {
			t.event, t.enqueued = c.stream.Record(t.event), true
		}
	}
	c.current = operation{}
}

// issue gives NCCL an operation, behind the events it has to wait for.
func (c *channel) issue(o operation) error {
	for _, t := range []*transfer{o.send, o.recv} {
		if t != nil && t.waits {
			c.stream.After(t.start)
		}
	}
	handle := c.stream.(handled).Handle()
	switch {
	case o.recv == nil:
		return c.comm.send(o.send.mem, 1, handle)
	case o.send == nil:
		return c.comm.recv(o.recv.mem, 0, handle)
	}
	return c.comm.self(o.recv.mem, o.send.mem, 0, handle)
}

// handled is a stream of a GPU, which has a handle of the driver.
type handled interface{ Handle() unsafe.Pointer }

// explain adds to an error which channel it belongs to.
func (c *channel) explain(err error) error {
	from, to := c.d.control.t.Peer(c.from), c.d.control.t.Peer(c.to)
	return fmt.Errorf("nccl: from rank %d (host %s) to rank %d (host %s): %w",
		from.World, from.Host, to.World, to.Host, err)
}

// fit makes a transfer's memory as long as the message that is sent. It is an error
// if a receive wants another length, or has no room for it.
func fit(recv *transfer, sent int64) error {
	if err := mismatch(recv.tag, sent, recv.mem.Bytes, recv.upTo); err != nil {
		return err
	}
	recv.mem = recv.mem.Span(0, sent)
	return nil
}

// mismatch is the error of a message that does not fit its receive, nil if it does.
func mismatch(tag int, sent, expected int64, upTo bool) error {
	if sent == expected || upTo && sent < expected {
		return nil
	}
	return fmt.Errorf("a message with tag %d has %d bytes, but %d are expected", tag, sent, expected)
}
