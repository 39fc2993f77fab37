//go:build cgo

package nccl

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/device"
)

var errUnderWay, errClosed = errors.New("closed with a message under way"), errors.New("nccl: closed")

// messages is the transport of messages between the neighbours of a chain.
type messages struct {
	*family
	control    control
	rank, size int
	path       domain   // of all ranks
	ring       *domain  // of the first and the last rank, made when first needed; nil: not here
	around     *opening // of ring
	pairs      []*pair
	self       loop
	spare      []*transfer // that can be used again
	err        error       // of every call from now on
	opening    *opening    // of path; nil: by a split
}

// begin begins a transfer as wanted once after has happened.
func (m *messages) begin(wanted transfer, after device.Event) (*transfer, error) {
	if m.err != nil {
		return nil, m.err
	}
	t := m.newTransfer(wanted, after)
	if t.peer == m.rank {
		if err := m.self.post(t); err != nil {
			return nil, m.fail(t.explain(err))
		}
		return t, nil
	}
	p, err := m.pair(t.peer)
	if err != nil {
		return nil, m.fail(err)
	}
	p.post(t)
	return t, nil
}

// newTransfer returns a transfer as wanted.
func (m *messages) newTransfer(wanted transfer, after device.Event) *transfer {
	t := new(transfer)
	if last := len(m.spare) - 1; last >= 0 {
		t, m.spare = m.spare[last], m.spare[:last]
	}
	wanted.m, wanted.event, wanted.start = m, t.event, m.moment(t.start, after)
	*t = wanted
	return t
}

// pair returns what this rank has with a neighbour.
func (m *messages) pair(peer int) (*pair, error) {
	if i := slices.IndexFunc(m.pairs, func(p *pair) bool { return p.peer == peer }); i >= 0 {
		return m.pairs[i], nil
	}
	d, err := m.domainTo(peer)
	if err != nil {
		return nil, err
	}
	p := newPair(m, peer, d)
	m.pairs = append(m.pairs, p)
	return p, nil
}

// domainTo returns the domain of the messages with a rank.
func (m *messages) domainTo(peer int) (*domain, error) {
	lo, hi := min(m.rank, peer), max(m.rank, peer)
	if hi-lo == 1 {
		return &m.path, nil
	}
	if lo > 0 || hi < m.size-1 {
		panic("nccl: a message to a rank that is no neighbour")
	}
	ring := m.newDomain(2)
	m.ring = &ring
	var err error
	m.around, err = openByIdentity(&m.control, m.ring, min(m.rank, 1), m.ctas, []int{lo, hi})
	return m.ring, err
}

// domains returns those that there are.
func (m *messages) domains() []*domain {
	if m.ring == nil {
		return []*domain{&m.path}
	}
	return []*domain{&m.path, m.ring}
}

// Drive takes all messages as far as they go without waiting.
func (m *messages) Drive() error {
	if m.err != nil {
		return m.err
	}
	if err := m.drive(); err != nil {
		return m.fail(err)
	}
	return nil
}

func (m *messages) drive() error {
	if err := m.control.drive(); err != nil {
		return fmt.Errorf("control messages: %w", err)
	}
	for _, o := range []*opening{m.opening, m.around} {
		if o == nil {
			continue
		}
		if err := o.drive(); err != nil {
			return err
		}
	}
	for _, p := range m.pairs {
		if err := p.drive(); err != nil {
			return fmt.Errorf("with %s: %w", m.control.who(p.peer), err)
		}
	}
	if err := m.self.drive(); err != nil {
		return fmt.Errorf("of this rank to itself: %w", err)
	}
	if err := m.advance(&m.path); err != nil || m.ring == nil {
		return err
	}
	return m.advance(m.ring)
}

// advance issues what is agreed on a domain: the next exchange of each pair, as one group.
func (m *messages) advance(d *domain) error {
	for d.ranks > 1 {
		idle, err := d.idle()
		if err != nil {
			return m.explain(d, err)
		}
		if !idle {
			return nil
		}
		some, b := false, &d.batch
		b.transfers = b.transfers[:0]
		for _, p := range m.pairs {
			if p.domain != d {
				continue
			}
			e, taken, err := p.take()
			if err != nil {
				return fmt.Errorf("with %s: %w", m.control.who(p.peer), err)
			}
			some = some || taken
			b.add(e)
		}
		if len(b.transfers) > 0 {
			d.do(b)
		} else if !some {
			return nil
		}
	}
	return nil
}

// explain adds to an error of NCCL's which messages were issued last.
func (m *messages) explain(d *domain, err error) error {
	for _, p := range m.pairs {
		if p.domain == d {
			err = fmt.Errorf("with %s: %w", m.control.who(p.peer), err)
		}
	}
	return err
}

// fail ends all messages with an error, which it returns.
func (m *messages) fail(err error) error {
	if m.err == nil {
		m.err = named(err)
		abort(m.domains())
	}
	return m.err
}

// quiet reports whether no message is under way on this side.
func (m *messages) quiet() bool {
	return m.self.quiet() && !slices.ContainsFunc(m.pairs, func(p *pair) bool { return !p.quiet() })
}

// Close ends the communicators. Collective over the chain.
func (m *messages) Close() error {
	if m.err != nil {
		return m.err
	}
	if err := m.close(); err != nil {
		return m.fail(fmt.Errorf("close: %w", err))
	}
	m.err = errClosed
	return nil
}

func (m *messages) close() error {
	if !m.quiet() {
		return errUnderWay
	}
	domains := m.domains()
	deadline := closeBy(domains)
	for _, d := range domains {
		if err := d.close(deadline); err != nil {
			return err
		}
	}
	for _, p := range m.pairs {
		p.close()
	}
	return m.control.release(deadline)
}

// batch is the job of a chain's domain: messages that are issued as one group.
type batch struct{ transfers []*transfer }

// add adds the messages of an exchange. One without bytes is done.
func (b *batch) add(e exchange) {
	for _, t := range []*transfer{e.send, e.recv} {
		switch {
		case t == nil:
		case t.mem.Bytes == 0:
			t.enqueued = true
		default:
			b.transfers = append(b.transfers, t)
		}
	}
}

func (b *batch) issue(d *domain, k *communicator) (communicator, error) {
	return communicator{}, d.group(b, k)
}

func (b *batch) enqueue(d *domain, k *communicator) error {
	for _, t := range b.transfers {
		peer, err := t.peer, error(nil)
		if d != &t.m.path { // of the chain's two ends
			peer = min(peer, 1)
		}
		if t.sends {
			err = k.send(t.mem, peer, d.handle())
		} else {
			err = k.recv(t.mem, peer, d.handle())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) settle(d *domain) {
	for _, t := range b.transfers {
		t.event, t.enqueued = d.stream.Record(t.event), true
	}
}
