//go:build cgo

package nccl

import (
	"cmp"
	"slices"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// end is one rank's side of a lane.
type end interface {
	// drive takes what has come in, and issues what is agreed.
	drive() error
	// way returns the lane.
	way() *lane
	// quiet reports whether no message is under way on this side; close then gives
	// back what control messages used.
	quiet() bool
	close()
}

func (l *lane) way() *lane  { return l }
func (l *lane) quiet() bool { return len(l.queue) == 0 && l.current == operation{} }

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

// sender is the sending end of a lane.
type sender struct {
	*lane
	inbox   inbox
	pending []*transfer // not granted yet, the oldest first
	grants  []notice    // without a message yet, the oldest first
}

// open begins the lane and tells the receiver its identity.
func (s *sender) open() error {
	id, err := newIdentity()
	if err == nil {
		err = s.c.control.tell(s.to, tagGo, id[:])
	}
	if err == nil {
		err = s.begin(id)
	}
	return err
}

func (s *sender) post(tag int, m tensor.Mem, after device.Event) (*transfer, error) {
	t := s.fresh(true, tag, m, false, after)
	s.pending = append(s.pending, t)
	return t, s.match()
}

// drive takes the grants that have come. While a message is pending another one
// is due: its own.
func (s *sender) drive() error {
	for len(s.pending) > 0 {
		data, err := s.inbox.next(noticeBytes)
		if err != nil {
			return err
		}
		if data == nil {
			break
		}
		s.grants = append(s.grants, decode(data))
		if err := s.match(); err != nil {
			return err
		}
	}
	return s.advance()
}

// match queues the messages that are granted, and tells the receiver so.
func (s *sender) match() error {
	for i := 0; i < len(s.grants); {
		grant := s.grants[i]
		t := first(&s.pending, grant.tag)
		if t == nil {
			i++
			continue
		}
		s.grants = slices.Delete(s.grants, i, i+1)
		if err := s.c.control.tell(s.to, tagGo, notice{t.tag, t.mem.Bytes, false}.encode()); err != nil {
			return err
		}
		if err := mismatch(t.tag, t.mem.Bytes, grant.bytes, grant.upTo); err != nil {
			return err
		}
		s.push(operation{send: t})
	}
	return nil
}

func (s *sender) quiet() bool { return len(s.pending) == 0 && s.lane.quiet() }
func (s *sender) close()      { s.inbox.close() }

// receiver is the receiving end of a lane.
type receiver struct {
	*lane
	inbox   inbox
	pending []*transfer // granted, the oldest first
}

func (r *receiver) post(tag int, m tensor.Mem, upTo bool, after device.Event) (*transfer, error) {
	t := r.fresh(false, tag, m, upTo, after)
	r.pending = append(r.pending, t)
	return t, r.c.control.tell(r.from, tagGrant, notice{tag, m.Bytes, upTo}.encode())
}

// drive takes what has come, and issues what is agreed. Where NCCL fails the
// sender may have said why just before.
func (r *receiver) drive() error {
	if err := r.listen(); err != nil {
		return err
	}
	if err := r.advance(); err != nil {
		return cmp.Or(r.listen(), err)
	}
	return nil
}

// listen takes what the sender says comes next. First comes the lane's identity.
// While a receive is pending another message is due: its own.
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

// expect queues the receipt of what comes next.
func (r *receiver) expect(n notice) error {
	t := first(&r.pending, n.tag)
	if t == nil {
		panic("nccl: a message that was not granted")
	}
	if err := mismatch(n.tag, n.bytes, t.mem.Bytes, t.upTo); err != nil {
		return err
	}
	t.mem = t.mem.Span(0, n.bytes)
	r.push(operation{recv: t})
	return nil
}

func (r *receiver) quiet() bool { return len(r.pending) == 0 && r.lane.quiet() }
func (r *receiver) close()      { r.inbox.close() }

// loop is both ends of the lane of a rank to itself.
type loop struct {
	*lane
	sends, recvs []*transfer // without the other half yet, the oldest first
}

func (l *loop) open() error {
	id, err := newIdentity()
	if err != nil {
		return err
	}
	return l.begin(id)
}

func (l *loop) send(tag int, m tensor.Mem, after device.Event) (*transfer, error) {
	t := l.fresh(true, tag, m, false, after)
	if other := first(&l.recvs, tag); other != nil {
		return t, l.pair(t, other)
	}
	l.sends = append(l.sends, t)
	return t, nil
}

func (l *loop) recv(tag int, m tensor.Mem, upTo bool, after device.Event) (*transfer, error) {
	t := l.fresh(false, tag, m, upTo, after)
	if other := first(&l.sends, tag); other != nil {
		return t, l.pair(other, t)
	}
	l.recvs = append(l.recvs, t)
	return t, nil
}

func (l *loop) pair(send, recv *transfer) error {
	if err := mismatch(send.tag, send.mem.Bytes, recv.mem.Bytes, recv.upTo); err != nil {
		return err
	}
	recv.mem = recv.mem.Span(0, send.mem.Bytes)
	l.push(operation{send, recv})
	return nil
}

func (l *loop) drive() error { return l.advance() }
func (l *loop) quiet() bool  { return len(l.sends) == 0 && len(l.recvs) == 0 && l.lane.quiet() }
func (l *loop) close()       {}
