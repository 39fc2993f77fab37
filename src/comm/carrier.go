package comm

import (
	"errors"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Carrier moves device memory between the ranks of one group, as Transport moves
// host memory. Messages match by rank and tag, in order, apart from those of host
// memory. Only the rank's owner goroutine calls it.
type Carrier interface {
	// Send begins to send m to a rank, once after has happened (nil: at once). It
	// looks at after before it returns: the event may be recorded again then. When
	// the handle is done, work that is enqueued afterwards may overwrite m.
	Send(to, tag int, m tensor.Mem, after device.Event) (Handle, error)
	// Recv begins to receive exactly m.Bytes into m, or up to as many, which nobody
	// uses any more once after has happened. When the handle is done, work that is
	// enqueued afterwards finds the message there; the host need not have waited for
	// it. A message of another length, or a longer one, is an error of the handle,
	// after which nothing is carried.
	Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Handle, error)
	// Drive takes what is under way as far as it goes now, as testing any handle
	// does, and returns an error once the carrier has failed.
	Drive() error
	// Close frees the carrier's resources. All messages are done. Collective.
	Close() error
	// Abort gives up what is under way: its handles, and whatever is asked of the
	// carrier later, end with an error. It does not wait for other ranks.
	Abort()
}

// isend begins to send a piece of a message.
func (g *Group) isend(to, tag int, m tensor.Mem, stamp float64, after device.Event) (Handle, error) {
	if m.Space != tensor.Device {
		return g.t.Isend(to, tag, m, stamp)
	}
	if g.carrier == nil {
		return nil, errNoCarrier
	}
	return g.carrier.Send(to, tag, m, after)
}

// irecv begins to receive a piece of a message.
func (g *Group) irecv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Handle, error) {
	if m.Space != tensor.Device {
		return g.t.Irecv(from, tag, m)
	}
	if g.carrier == nil {
		return nil, errNoCarrier
	}
	return g.carrier.Recv(from, tag, m, upTo, after)
}

var errNoCarrier = errors.New("nothing here carries device memory")

// carry makes the carrier of a group, if its options say how.
func (g *Group) carry() error {
	if g.o.Carry == nil {
		return nil
	}
	var err error
	g.carrier, err = g.o.Carry(g.t)
	return err
}
