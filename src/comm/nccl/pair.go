//go:build cgo

package nccl

import "slices"

// pair is one side of the messages between this rank and a neighbour, in both directions.
// The lower of the two ranks decides what both issue next: an exchange, at most one
// message in each direction.
type pair struct {
	m      *messages
	peer   int
	domain *domain
	lower  bool // this rank is

	// A receive is in posted until its start, then in cleared: the sender knows those.
	posted, cleared []*transfer
	// A send is in pending until the receiver is clear to send, then in matched until its
	// start, then in ready; there the lower rank knows of it.
	pending, matched, ready []*transfer
	room                    []notice    // clear-to-send messages that no send has met yet
	coming                  []*transfer // lower: receives of messages that are ready to be sent
	agreed                  []exchange  // upper: what the lower has decided, not issued yet

	clears, nexts inbox
}

// exchange is what both ranks of a pair issue at once; either may be nil.
type exchange struct{ send, recv *transfer }

func newPair(m *messages, peer int, d *domain) *pair {
	p := &pair{m: m, peer: peer, domain: d, lower: m.rank < peer}
	next := tagOrder
	if p.lower {
		next = tagReadyToSend
	}
	p.clears = inbox{k: &m.control, from: peer, tag: tagClearToSend}
	p.nexts = inbox{k: &m.control, from: peer, tag: next}
	return p
}

// post begins a transfer.
func (p *pair) post(t *transfer) {
	if t.sends {
		p.pending = append(p.pending, t)
	} else {
		p.posted = append(p.posted, t)
	}
}

// drive takes all messages as far as control messages are needed.
func (p *pair) drive() error {
	for _, step := range []func(*pair) error{(*pair).clear, (*pair).match, (*pair).offer, (*pair).listen} {
		if err := step(p); err != nil {
			return err
		}
	}
	return nil
}

// clear tells the sender of the receives that may begin, in the order in which they were
// posted: messages with one tag keep it.
func (p *pair) clear() error {
	for len(p.posted) > 0 {
		if happened, err := p.posted[0].start.happened(); err != nil || !happened {
			return err
		}
		t := pop(&p.posted)
		if err := p.m.control.notify(p.peer, tagClearToSend, t.notice()); err != nil {
			return err
		}
		p.cleared = append(p.cleared, t)
	}
	return nil
}

// match finds the sends for which the receiver has room. While one is pending, its
// clear-to-send is to come.
func (p *pair) match() error {
	for {
		for i := 0; i < len(p.room); {
			t := first(&p.pending, p.room[i].tag)
			if t == nil {
				i++
				continue
			}
			t.room = p.room[i]
			p.room = slices.Delete(p.room, i, i+1)
			p.matched = append(p.matched, t)
		}
		if len(p.pending) == 0 {
			return nil
		}
		data, err := p.clears.next(noticeBytes)
		if err != nil || data == nil {
			return err
		}
		p.room = append(p.room, decode(data))
	}
}

// offer takes the sends that may begin; the upper rank tells the lower of them. Those
// with one tag keep their order.
func (p *pair) offer() error {
	for i := 0; i < len(p.matched); {
		t := p.matched[i]
		happened, err := t.start.happened()
		if err != nil {
			return err
		}
		if !happened || slices.ContainsFunc(p.matched[:i], func(o *transfer) bool { return o.tag == t.tag }) {
			i++
			continue
		}
		p.matched = slices.Delete(p.matched, i, i+1)
		p.ready = append(p.ready, t)
		if !p.lower {
			if err := p.m.control.notify(p.peer, tagReadyToSend, t.notice()); err != nil {
				return err
			}
			if err := p.fits(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// fits is an error if the receiver has no room for what is sent.
func (p *pair) fits(t *transfer) error {
	return mismatch(t.tag, t.mem.Bytes, t.room.bytes, t.room.upTo)
}

// listen takes what the other rank says of the next messages.
func (p *pair) listen() error {
	for p.expects() {
		length := int64(noticeBytes)
		if !p.lower {
			length = 2 * noticeBytes
		}
		data, err := p.nexts.next(length)
		if err != nil || data == nil {
			return err
		}
		if p.lower {
			t, err := p.receive(decode(data))
			if err != nil {
				return err
			}
			p.coming = append(p.coming, t)
			continue
		}
		if err := p.follow(decode(data), decode(data[noticeBytes:])); err != nil {
			return err
		}
	}
	return nil
}

// expects reports whether the other rank is to say something: the upper rank of the
// sends that are ready, the lower of all messages that are.
func (p *pair) expects() bool { return len(p.cleared) > 0 || !p.lower && len(p.ready) > 0 }

// receive returns the receive of a message that is ready to be sent.
func (p *pair) receive(n notice) (*transfer, error) {
	t := first(&p.cleared, n.tag)
	if t == nil {
		panic("nccl: a message that was not clear to send")
	}
	return t, fit(t, n.bytes)
}

// follow notes an exchange that the lower rank has decided.
func (p *pair) follow(recv, send notice) (err error) {
	e := exchange{}
	if recv.some {
		if e.recv, err = p.receive(recv); err != nil {
			return err
		}
	}
	if send.some {
		e.send = pop(&p.ready) // the lower rank keeps the order in which they were offered
	}
	p.agreed = append(p.agreed, e)
	return nil
}

// take returns the next exchange. The lower rank decides on it here, where it is issued
// at once.
func (p *pair) take() (e exchange, some bool, err error) {
	if !p.lower {
		if len(p.agreed) == 0 {
			return e, false, nil
		}
		e = p.agreed[0]
		p.agreed = slices.Delete(p.agreed, 0, 1)
		return e, true, nil
	}
	if len(p.ready)+len(p.coming) == 0 {
		return e, false, nil
	}
	e = exchange{send: pop(&p.ready), recv: pop(&p.coming)}
	var sends, receives notice
	if e.send != nil {
		sends = e.send.notice()
	}
	if e.recv != nil {
		receives = e.recv.notice()
	}
	if err := p.m.control.notify(p.peer, tagOrder, sends, receives); err != nil {
		return e, false, err
	}
	if e.send != nil {
		err = p.fits(e.send)
	}
	return e, true, err
}

// quiet reports whether no message is under way on this side.
func (p *pair) quiet() bool {
	return len(p.posted)+len(p.cleared)+len(p.pending)+len(p.matched)+len(p.ready)+len(p.coming)+len(p.agreed) == 0
}

// close gives the control messages' memory back.
func (p *pair) close() {
	p.clears.close()
	p.nexts.close()
}

// loop is the messages of a rank to itself, which are copied.
type loop struct {
	m            *messages
	sends, recvs []*transfer // without the other half yet, the oldest first
	copies       []exchange  // not begun yet
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
	e := exchange{send: other, recv: t}
	if t.sends {
		e = exchange{send: t, recv: other}
	}
	l.copies = append(l.copies, e)
	return fit(e.recv, e.send.mem.Bytes)
}

// drive copies what both halves may begin of.
func (l *loop) drive() error {
	for len(l.copies) > 0 {
		e := l.copies[0]
		for _, t := range []*transfer{e.send, e.recv} {
			if happened, err := t.start.happened(); err != nil || !happened {
				return err
			}
		}
		l.copies = slices.Delete(l.copies, 0, 1)
		stream := l.m.gate
		if e.send.mem.Bytes > 0 {
			stream.Copy(e.recv.mem, e.send.mem)
		}
		for _, t := range []*transfer{e.send, e.recv} {
			t.event, t.enqueued = stream.Record(t.event), true
		}
	}
	return nil
}

func (l *loop) quiet() bool { return len(l.sends)+len(l.recvs)+len(l.copies) == 0 }
