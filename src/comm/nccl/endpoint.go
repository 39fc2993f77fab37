//go:build cgo

package nccl

import (
	"cmp"
	"slices"
)

// endpoint is one rank's side of a channel.
type endpoint interface {
	// base returns the channel.
	base() *channel
	// open begins the channel, as far as that is up to this side.
	open() error
	// post begins a transfer.
	post(t *transfer) error
	// drive takes the control messages that have arrived, and issues the operations
	// that are agreed.
	drive() error
	// quiet reports whether no message is under way on this side; close then gives
	// the control messages' memory back.
	quiet() bool
	close()
}

// first removes and returns the oldest transfer with a tag, or nil.
func first(list *[]*transfer, tag int) *transfer {
	i := slices.IndexFunc(*list, func(t *transfer) bool { return t.tag == tag })
	if i < 0 {
		return nil
	}
	t := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return t
}

// sender is the sending side of a channel.
type sender struct {
	*channel
	inbox   inbox
	pending []*transfer // not clear to send yet, the oldest first
	clear   []notice    // clear to send, without a transfer yet, the oldest first
}

// open begins the channel and sends the receiver its identity.
func (s *sender) open() error {
	id, err := newIdentity()
	if err == nil {
		err = s.d.control.send(s.to, tagReadyToSend, id[:])
	}
	if err == nil {
		err = s.begin(id)
	}
	return err
}

func (s *sender) post(t *transfer) error {
	s.pending = append(s.pending, t)
	return s.match()
}

// drive takes the clear-to-send messages that have arrived. While a transfer is
// pending its own has not.
func (s *sender) drive() error {
	for len(s.pending) > 0 {
		data, err := s.inbox.next(noticeBytes)
		if err != nil {
			return err
		}
		if data == nil {
			break
		}
		s.clear = append(s.clear, decode(data))
		if err := s.match(); err != nil {
			return err
		}
	}
	return s.advance()
}

// match queues the transfers that are clear to send, and sends the receiver their
// lengths.
func (s *sender) match() error {
	for i := 0; i < len(s.clear); {
		n := s.clear[i]
		t := first(&s.pending, n.tag)
		if t == nil {
			i++
			continue
		}
		s.clear = slices.Delete(s.clear, i, i+1)
		if err := s.d.control.notify(s.to, tagReadyToSend, notice{tag: t.tag, bytes: t.mem.Bytes}); err != nil {
			return err
		}
		if err := mismatch(t.tag, t.mem.Bytes, n.bytes, n.upTo); err != nil {
			return err
		}
		s.push(operation{send: t})
	}
	return nil
}

func (s *sender) quiet() bool { return len(s.pending) == 0 && s.channel.quiet() }
func (s *sender) close()      { s.inbox.close() }

// receiver is the receiving side of a channel.
type receiver struct {
	*channel
	inbox   inbox
	pending []*transfer // not ready to send yet, the oldest first
}

// open does nothing: the channel begins with its identity, from the sender.
func (r *receiver) open() error { return nil }

func (r *receiver) post(t *transfer) error {
	r.pending = append(r.pending, t)
	return r.d.control.notify(r.from, tagClearToSend, notice{t.tag, t.mem.Bytes, t.upTo})
}

// drive takes the ready-to-send messages that have arrived, and issues the operations
// that are agreed. Where NCCL fails, such a message may have the reason.
func (r *receiver) drive() error {
	if err := r.listen(); err != nil {
		return err
	}
	if err := r.advance(); err != nil {
		return cmp.Or(r.listen(), err)
	}
	return nil
}

// listen takes the sender's messages: first the channel's identity, then, for each
// pending transfer, that it is ready to send, in the order in which it sends.
func (r *receiver) listen() error {
	for len(r.pending) > 0 {
		length := int64(noticeBytes)
		if !r.comm.begun() {
			length = blockBytes
		}
		data, err := r.inbox.next(length)
		if err != nil || data == nil {
			return err
		}
		if !r.comm.begun() {
			err = r.begin(identity(data))
		} else {
			err = r.expect(decode(data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expect queues the receive of the message that the sender is ready to send.
func (r *receiver) expect(n notice) error {
	t := first(&r.pending, n.tag)
	if t == nil {
		panic("nccl: a message that was not clear to send")
	}
	if err := fit(t, n.bytes); err != nil {
		return err
	}
	r.push(operation{recv: t})
	return nil
}

func (r *receiver) quiet() bool { return len(r.pending) == 0 && r.channel.quiet() }
func (r *receiver) close()      { r.inbox.close() }

// loop is both sides of the channel of a rank to itself.
type loop struct {
	*channel
	sends, recvs []*transfer // without the other half yet, the oldest first
}

func (l *loop) open() error {
	id, err := newIdentity()
	if err != nil {
		return err
	}
	return l.begin(id)
}

func (l *loop) post(t *transfer) error {
	same, others := &l.recvs, &l.sends
	if t.sends {
		same, others = others, same
	}
	other := first(others, t.tag)
	if other == nil {
		*same = append(*same, t)
		return nil
	}
	o := operation{send: other, recv: t}
	if t.sends {
		o = operation{send: t, recv: other}
	}
	if err := fit(o.recv, o.send.mem.Bytes); err != nil {
		return err
	}
	l.push(o)
	return nil
}

func (l *loop) drive() error { return l.advance() }
func (l *loop) quiet() bool  { return len(l.sends) == 0 && len(l.recvs) == 0 && l.channel.quiet() }
func (l *loop) close()       {}
