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

// transport is a comm.DeviceTransport. The rank's owner alone calls it.
type transport struct {
	t        comm.Transport
	rounds   *rounds   // of the world
	owned    bool      // the transport is that of the world
	world    []int     // by rank here: its rank in the world
	messages *messages // of a chain; else nil
}

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
	f := &family{device: d, compute: compute, ctas: ctas, gate: d.NewStream()}
	return newWorld(f, t, true)
}

// newWorld returns the transport of a world, whose communicator begins with an identity,
// or is split off another.
func newWorld(f *family, t comm.Transport, byIdentity bool) (*transport, error) {
	f.join()
	w := &rounds{family: f, domain: f.newDomain(t.Size()), control: control{t: t}, rank: t.Rank(), inboxes: make([]*inbox, t.Size())}
	d := &transport{t: t, rounds: w, owned: true, world: identical(t.Size())}
	if byIdentity && w.ranks > 1 {
		var err error
		if w.opening, err = openByIdentity(&w.control, &w.domain, w.rank, f.ctas, d.world); err != nil {
			return nil, w.fail(err)
		}
	}
	return d, nil
}

func identical(size int) []int {
	list := make([]int, size)
	for i := range list {
		list[i] = i
	}
	return list
}

// Split returns the transport of a part, and has the world's communicator split where
// that needs one.
func (d *transport) Split(t comm.Transport, color int, kind comm.Kind) (comm.DeviceTransport, error) {
	if d.rounds.err != nil {
		return nil, d.rounds.err
	}
	var part *transport
	var into *domain
	split := kind != comm.Row && d.owned && d.rounds.ranks > 1 && splits()
	if t != nil {
		var err error
		if part, err = d.part(t, kind, !split); err != nil {
			return nil, err
		}
		into = &part.rounds.domain
		if part.messages != nil {
			into = &part.messages.path
		}
	}
	if split {
		s := &splitting{color: color, ctas: d.rounds.ctas}
		if t != nil && t.Size() > 1 {
			s.key, s.into = t.Rank(), into
		}
		d.rounds.queue = append(d.rounds.queue, s)
	}
	if part == nil {
		return nil, nil
	}
	return part, nil
}

// part returns the transport of a part, its communicator begun by an identity or left to
// a split.
func (d *transport) part(t comm.Transport, kind comm.Kind, byIdentity bool) (*transport, error) {
	if kind == comm.Apart {
		return newWorld(d.rounds.family, t, byIdentity)
	}
	f := d.rounds.family
	f.join()
	part := &transport{t: t, rounds: d.rounds}
	for rank := range t.Size() {
		part.world = append(part.world, d.find(t.Peer(rank)))
	}
	if kind == comm.Row {
		return part, nil
	}
	m := &messages{family: f, control: control{t: t}, rank: t.Rank(), size: t.Size(), path: f.newDomain(t.Size())}
	m.self.m = m
	part.messages = m
	if byIdentity && m.size > 1 {
		var err error
		if m.opening, err = openByIdentity(&m.control, &m.path, m.rank, f.ctas, identical(m.size)); err != nil {
			return nil, m.fail(err)
		}
	}
	return part, nil
}

// find returns the rank in the world of a rank of a part.
func (d *transport) find(peer comm.Peer) int {
	for rank, world := range d.world {
		if d.t.Peer(rank).World == peer.World {
			return world
		}
	}
	panic("nccl: a part with a rank that is not in the whole")
}

// Ready reports whether the communicators have been made that the transport needs, and
// those split off it, and drives that.
func (d *transport) Ready() (bool, error) {
	if err := d.Drive(); err != nil {
		return false, err
	}
	if d.messages != nil {
		return d.messages.path.open()
	}
	open, err := d.rounds.open()
	return open && len(d.rounds.queue) == 0, err
}

// Send begins to send m to a neighbour once after has happened.
func (d *transport) Send(to, tag int, m tensor.Mem, after device.Event) (comm.Handle, error) {
	return d.begin(transfer{peer: to, sends: true, tag: tag, mem: m}, after)
}

// Recv begins to receive exactly m.Bytes into m, or at most as many, once after has
// happened.
func (d *transport) Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (comm.Handle, error) {
	return d.begin(transfer{peer: from, tag: tag, mem: m, upTo: upTo}, after)
}

func (d *transport) begin(t transfer, after device.Event) (comm.Handle, error) {
	if d.messages == nil {
		panic("nccl: a message in a group that is no chain")
	}
	r, err := d.messages.begin(t, after)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Exchange begins a round.
func (d *transport) Exchange(sends, recvs []comm.Part, after device.Event) (comm.RoundHandle, error) {
	if d.rounds.err != nil {
		return nil, d.rounds.err
	}
	return d.rounds.newRound(sends, recvs, d.world, after), nil
}

// Drive takes messages and rounds as far as they go without waiting.
func (d *transport) Drive() error {
	if err := d.rounds.Drive(); err != nil || d.messages == nil {
		return err
	}
	return d.messages.Drive()
}

// Close ends what the transport has of its own. Collective.
func (d *transport) Close() error {
	end := d.rounds.Close
	if d.messages != nil {
		end = d.messages.Close
	} else if !d.owned {
		end = func() error { return d.rounds.err }
	}
	if err := end(); err != nil {
		return err
	}
	d.rounds.leave()
	return nil
}

// Abort gives up all that the transport has of its own.
func (d *transport) Abort() {
	if d.messages != nil {
		_ = d.messages.fail(errAborted)
	} else if d.owned {
		_ = d.rounds.fail(errAborted)
	}
}
