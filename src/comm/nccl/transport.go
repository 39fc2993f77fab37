//go:build cgo

package nccl

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

var errAborted = errors.New("aborted")

// named returns an error with the name of this package.
func named(err error) error { return fmt.Errorf("nccl: %w", err) }

// New returns the transport of the memory of GPUs for the world of the ranks of t. The kernels of
// its communicator, and of the transports split from it, take at most ctas CTAs each. d makes the
// streams, and its context must be current. Work that uses received memory is enqueued on compute.
// Messages should wait for events of compute: these happen in the order in which messages are
// begun. NCCL refuses two ranks on one GPU. The error is that there is no library, or that it is
// too old.
func New(t comm.Transport, d device.Device, compute device.Stream, ctas int) (comm.DeviceTransport, error) {
	if _, err := Version(); err != nil {
		return nil, err
	}
	w := newWorld(&family{device: d, compute: compute, ctas: ctas, gate: d.NewStream()}, t)
	if err := w.openByIdentity(); err != nil {
		return nil, err
	}
	return w, nil
}

// member is the part that is alike in the transports of a world, of its rows and of its chains.
// Their rounds travel on the world's communicator. Only a chain has messages between neighbours.
type member struct {
	t      comm.Transport
	rounds *rounds // of the world
	world  []int   // by rank here: its rank in the world
}

// Send panics: only a chain has messages.
func (m *member) Send(int, int, tensor.Mem, device.Event) (comm.Handle, error) {
	panic("nccl: a message in a group that is no chain")
}

// Recv panics: only a chain has messages.
func (m *member) Recv(int, int, tensor.Mem, bool, device.Event) (comm.Handle, error) {
	panic("nccl: a message in a group that is no chain")
}

// Exchange begins a round.
func (m *member) Exchange(sends, recvs []comm.Part, after device.Event) (comm.RoundHandle, error) {
	if m.rounds.err != nil {
		return nil, m.rounds.err
	}
	return m.rounds.newRound(sends, recvs, m.world, after), nil
}

// Ready drives the rounds. It reports whether the world's communicator is open, and all
// communicators that are split from it.
func (m *member) Ready() (bool, error) {
	if err := m.rounds.Drive(); err != nil {
		return false, err
	}
	open, err := m.rounds.open()
	return open && len(m.rounds.queue) == 0, err
}

// Drive takes rounds as far as they go without waiting.
func (m *member) Drive() error { return m.rounds.Drive() }

// Split returns the transport of a new group. A communicator of the group begins with an identity.
func (m *member) Split(t comm.Transport, _ int, kind comm.Kind) (comm.DeviceTransport, error) {
	switch {
	case m.rounds.err != nil:
		return nil, m.rounds.err
	case t == nil:
		return nil, nil
	case kind == comm.Row:
		return newRow(m, t), nil
	}
	part := m.newPart(t, kind)
	if err := part.openByIdentity(); err != nil {
		return nil, err
	}
	return part, nil
}

// opener is a transport with a communicator of its own, a world's or a chain's. The communicator
// begins with an identity, or a splitting opens its domain.
type opener interface {
	comm.DeviceTransport
	openByIdentity() error
	domain() *domain
}

// newPart returns the transport of a new group, without its communicator. The kind is not Row.
func (m *member) newPart(t comm.Transport, kind comm.Kind) opener {
	if kind == comm.Apart {
		return newWorld(m.rounds.family, t)
	}
	return newChain(m, t)
}

// newMember returns the member for the ranks of t, which are some of the ranks of m.
func (m *member) newMember(t comm.Transport) member {
	m.rounds.join()
	part := member{t: t, rounds: m.rounds}
	for rank := range t.Size() {
		part.world = append(part.world, m.find(t.Peer(rank)))
	}
	return part
}

// find returns the rank in the world of a rank of a part.
func (m *member) find(peer comm.Peer) int {
	for rank, world := range m.world {
		if m.t.Peer(rank).World == peer.World {
			return world
		}
	}
	panic("nccl: a part with a rank that is not in the whole")
}

// worldTransport is the transport of an Apart group, a world. It owns the rounds and their
// communicator, which the rows and chains of the world use.
type worldTransport struct{ member }

// newWorld returns the transport of the world of the ranks of t, without its communicator.
func newWorld(f *family, t comm.Transport) *worldTransport {
	f.join()
	w := &rounds{family: f, domain: f.newDomain(t.Size()), control: control{t: t}, rank: t.Rank(), inboxes: make([]*inbox, t.Size())}
	return &worldTransport{member{t: t, rounds: w, world: identical(t.Size())}}
}

func (w *worldTransport) openByIdentity() (err error) {
	r := w.rounds
	if r.ranks == 1 {
		return nil
	}
	if r.opening, err = openByIdentity(&r.control, &r.domain, r.rank, r.ctas, w.world); err != nil {
		return r.fail(err)
	}
	return nil
}

func (w *worldTransport) domain() *domain { return &w.rounds.domain }

// Split returns the transport of a new group. A communicator of the group is split from the
// world's if NCCL can do this. All ranks of the world take part in the split.
func (w *worldTransport) Split(t comm.Transport, color int, kind comm.Kind) (comm.DeviceTransport, error) {
	if w.rounds.err != nil || kind == comm.Row || w.rounds.ranks == 1 || !splits() {
		return w.member.Split(t, color, kind)
	}
	s := &splitting{color: color, ctas: w.rounds.ctas}
	w.rounds.queue = append(w.rounds.queue, s)
	if t == nil {
		return nil, nil
	}
	part := w.newPart(t, kind)
	if t.Size() > 1 {
		s.key, s.into = t.Rank(), part.domain()
	}
	return part, nil
}

// Close ends the world's communicator. Collective.
func (w *worldTransport) Close() error {
	if err := w.rounds.Close(); err != nil {
		return err
	}
	w.rounds.leave()
	return nil
}

// Abort gives up the rounds of the world, its rows and its chains.
func (w *worldTransport) Abort() { _ = w.rounds.fail(errAborted) }

// rowTransport is the transport of a Row of a world. It has no communicator: its rounds are rounds
// of the world.
type rowTransport struct{ member }

// newRow returns the transport of the ranks of t, which are some of the ranks of whole.
func newRow(whole *member, t comm.Transport) *rowTransport {
	return &rowTransport{whole.newMember(t)}
}

// Close ends the row. The world stays open.
func (r *rowTransport) Close() error {
	if r.rounds.err != nil {
		return r.rounds.err
	}
	r.rounds.leave()
	return nil
}

// Abort does nothing: the rounds belong to the world.
func (r *rowTransport) Abort() {}

// chainTransport is the transport of a Chain of a world. Its rounds are rounds of the world. It
// owns the messages between neighbours and their communicators.
type chainTransport struct {
	member
	messages *messages
}

// newChain returns the transport of the ranks of t, which are some of the ranks of whole. Its
// communicator is not begun.
func newChain(whole *member, t comm.Transport) *chainTransport {
	part, f := whole.newMember(t), whole.rounds.family
	m := &messages{family: f, control: control{t: t}, rank: t.Rank(), size: t.Size(), path: f.newDomain(t.Size())}
	m.self.m = m
	return &chainTransport{part, m}
}

func (c *chainTransport) openByIdentity() (err error) {
	m := c.messages
	if m.size == 1 {
		return nil
	}
	if m.opening, err = openByIdentity(&m.control, &m.path, m.rank, m.ctas, identical(m.size)); err != nil {
		return m.fail(err)
	}
	return nil
}

func (c *chainTransport) domain() *domain { return &c.messages.path }

// Send begins to send m to a neighbour once after has happened.
func (c *chainTransport) Send(to, tag int, m tensor.Mem, after device.Event) (comm.Handle, error) {
	return c.begin(transfer{peer: to, sends: true, tag: tag, mem: m}, after)
}

// Recv begins to receive exactly m.Bytes into m, or at most as many, once after has
// happened.
func (c *chainTransport) Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (comm.Handle, error) {
	return c.begin(transfer{peer: from, tag: tag, mem: m, upTo: upTo}, after)
}

func (c *chainTransport) begin(t transfer, after device.Event) (comm.Handle, error) {
	r, err := c.messages.begin(t, after)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Ready drives rounds and messages. It reports whether the chain's communicator is open.
func (c *chainTransport) Ready() (bool, error) {
	if err := c.Drive(); err != nil {
		return false, err
	}
	return c.messages.path.open()
}

// Drive takes rounds and messages as far as they go without waiting.
func (c *chainTransport) Drive() error {
	if err := c.rounds.Drive(); err != nil {
		return err
	}
	return c.messages.Drive()
}

// Close ends the chain's communicators. The world stays open. Collective.
func (c *chainTransport) Close() error {
	if err := c.messages.Close(); err != nil {
		return err
	}
	c.rounds.leave()
	return nil
}

// Abort gives up the messages of the chain. The rounds belong to the world.
func (c *chainTransport) Abort() { _ = c.messages.fail(errAborted) }

func identical(size int) []int {
	list := make([]int, size)
	for i := range list {
		list[i] = i
	}
	return list
}
