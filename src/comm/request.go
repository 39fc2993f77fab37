package comm

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Request is a transfer under way.
type Request struct {
	g       *Group
	verb    string // "send" or "recv"
	peer    int
	bytes   int64
	handles []Handle // one per piece; those in front are done
	stamp   float64  // when the message departs, seconds; a receive knows it when it is done
	arrives bool     // receive: the clock reaches the arrival
	done    bool
	err     error
}

// Send begins to send m to a rank, after the event (nil: at once). m must not
// change until the request is done, and must not lie on Go's heap.
//
// Messages longer than Options.Piece travel in pieces of that size; the last
// piece is shorter, even empty, so that a length the receiver did not expect
// is always found.
//
// A send moves no clock. On a virtual one the message departs now, or as soon
// as earlier messages to the same rank have left the link to it (see Network):
// the k-th of k messages sent at once arrives latency + k·bytes/bandwidth later.
func (g *Group) Send(to, tag int, m tensor.Mem, after device.Event) (*Request, error) {
	g.check(to, tag)
	if after != nil {
		if err := after.Wait(); err != nil {
			return nil, fmt.Errorf("send %d bytes to %s: %w", m.Bytes, g.name(to), err)
		}
	}
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	return g.begin(&Request{g: g, verb: "send", peer: to, bytes: m.Bytes, stamp: g.depart(to, m.Bytes)}, tag, m)
}

// depart returns when a message of some bytes that is sent now departs, and
// occupies the link to the rank from then on.
func (g *Group) depart(to int, bytes int64) float64 {
	link := g.peers[to].World
	stamp := max(g.o.Clock.Now(), g.busy[link])
	g.busy[link] = stamp + g.o.Network.occupied(bytes)
	return stamp
}

// Recv begins to receive exactly m.Bytes from a rank into m. A message of
// another length is an error of Wait or Test, and nothing but the end of the run
// should follow: an MPI library may report a message that is too long after it
// has written past m (Open MPI 4.1 does). On a virtual clock Wait moves the
// clock to the message's departure plus Network.Seconds of it.
func (g *Group) Recv(from, tag int, m tensor.Mem) (*Request, error) {
	g.check(from, tag)
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	return g.begin(&Request{g: g, verb: "recv", peer: from, bytes: m.Bytes, arrives: true}, tag, m)
}

// begin hands the pieces of m to the transport.
func (g *Group) begin(r *Request, tag int, m tensor.Mem) (*Request, error) {
	for off := int64(0); ; off += g.o.Piece {
		length := min(g.o.Piece, m.Bytes-off)
		var piece tensor.Mem // absent if empty: it would begin where m's memory ends
		if length > 0 {
			piece = m.Span(off, length)
		}
		var h Handle
		var err error
		if r.verb == "send" {
			h, err = g.t.Isend(r.peer, tag, piece, r.stamp)
		} else {
			h, err = g.t.Irecv(r.peer, tag, piece)
		}
		if err != nil {
			return nil, r.explain(err)
		}
		r.handles = append(r.handles, h)
		if length < g.o.Piece {
			return r, nil
		}
	}
}

// Test reports whether the transfer is done, and drives it. An error counts as
// done. Once done, it keeps answering the same. It is no wait: a virtual clock
// does not move, whatever has come in.
func (r *Request) Test() (bool, error) {
	if r.done {
		return true, r.err
	}
	clock := r.g.o.Clock
	clock.Pause()
	defer clock.Resume()
	for len(r.handles) > 0 {
		done, stamp, err := r.handles[0].Test()
		if err != nil {
			r.done, r.err = true, r.explain(err)
			return true, r.err
		}
		if !done {
			return false, nil
		}
		r.stamp = stamp
		r.handles = r.handles[1:]
	}
	r.done = true
	return true, nil
}

// explain says which transfer an error belongs to.
func (r *Request) explain(err error) error {
	preposition := "to"
	if r.verb == "recv" {
		preposition = "from"
	}
	return fmt.Errorf("%s %d bytes %s %s: %w", r.verb, r.bytes, preposition, r.g.name(r.peer), err)
}

// name describes a rank of the group by its rank in the world.
func (g *Group) name(rank int) string {
	p := g.peers[rank]
	return fmt.Sprintf("rank %d (host %s, pid %d)", p.World, p.Host, p.PID)
}
