package comm

import (
	"fmt"
	"time"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Request is a message under way, as Send and Recv give it. It may be copied,
// and asked as often as wanted: the Group uses what it stands for again once
// the message is done, and a Request remembers which message was its own. A
// zero Request is done.
type Request struct {
	m      *message
	number uint64 // of the message that m stood for
}

// message is what a Group knows of a message under way.
type message struct {
	g        *Group
	number   uint64 // how many messages it stood for before
	verb     string // "send" or "recv"
	peer     int
	bytes    int64
	upTo     bool     // receive: the message may be shorter than bytes
	received int64    // receive: bytes of the pieces that are done
	handles  []Handle // one per piece
	next     int      // the first of handles that is not done
	stamp    float64  // when the message arrives, seconds; a receive knows it when it is done
	arrives  bool     // receive: the clock reaches the arrival
	done     bool
	err      error
}

// fresh returns a message that is not in use.
func (g *Group) fresh(verb string, peer int, bytes int64) *message {
	var r *message
	if last := len(g.idle) - 1; last >= 0 {
		r, g.idle = g.idle[last], g.idle[:last]
	} else {
		r = new(message)
	}
	*r = message{g: g, number: r.number, handles: r.handles[:0], verb: verb, peer: peer, bytes: bytes}
	return r
}

// recycle lets a message be used again that is done, without an error: requests
// for it know by the number that it was.
func (r *message) recycle() {
	r.number++
	r.g.idle = append(r.g.idle, r)
}

// Send begins to send m to a rank, after the event (nil: at once). m must not
// change until the request is done, and must not lie on Go's heap. Its Space, also
// where it is empty, says how it travels; the receiver's has to be the same.
//
// Messages longer than Options.Piece travel in pieces of that size; the last
// piece is shorter, even empty, so that a length the receiver did not expect
// is always found.
//
// A send moves no clock. On a virtual one the message departs now, or as soon
// as earlier messages to the same rank have left the link to it (see Network):
// the k-th of k messages sent at once arrives latency + k·bytes/bandwidth later.
func (g *Group) Send(to, tag int, m tensor.Mem, after device.Event) (Request, error) {
	g.check(to, tag)
	if after != nil && m.Space == tensor.Host {
		if err := after.Wait(); err != nil {
			return Request{}, fmt.Errorf("send %d bytes to %s: %w", m.Bytes, g.name(to), err)
		}
	}
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	r := g.fresh("send", to, m.Bytes)
	r.stamp = g.arrival(to, tag, m.Bytes)
	return r.request(r.begin(tag, m, after))
}

// arrival returns when a message of some bytes that is sent now arrives, and
// occupies the link to the rank until it has left.
func (g *Group) arrival(to, tag int, bytes int64) (arrives float64) {
	peer := g.peers[to].World
	l := g.links[peer]
	factor := 1.0
	if d := g.o.Network.Delay; d.Most > 1 {
		if l.sent == nil {
			l.sent = make(map[int]uint64)
		}
		factor = d.Factor(g.peers[g.rank].World, peer, tag, l.sent[tag])
		l.sent[tag]++
	}
	l.busy, arrives = g.o.Network.Travel(g.o.Clock.Now(), l.busy, bytes, factor)
	g.links[peer] = l
	return arrives
}

// Recv begins to receive exactly m.Bytes from a rank into m, which nobody uses any
// more once after has happened (nil: now). A message of
// another length is an error of Wait or Test, and nothing but the end of the run
// should follow: an MPI library may report a message that is too long after it
// has written past m (Open MPI 4.1 does). On a virtual clock Wait moves the
// clock to the message's arrival (see Network).
func (g *Group) Recv(from, tag int, m tensor.Mem, after device.Event) (Request, error) {
	return g.recv(from, tag, m, false, after)
}

// RecvUpTo begins to receive a message that Send has sent and that may be shorter
// than m; Request.Received tells its length. The memory behind it stays as it is.
// It panics unless m is shorter than Options.Piece: the number of pieces would
// depend on the length.
func (g *Group) RecvUpTo(from, tag int, m tensor.Mem, after device.Event) (Request, error) {
	if m.Bytes >= g.o.Piece {
		panic("comm: RecvUpTo of more than one piece")
	}
	return g.recv(from, tag, m, true, after)
}

func (g *Group) recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Request, error) {
	g.check(from, tag)
	if after != nil && m.Space == tensor.Host {
		if err := after.Wait(); err != nil {
			return Request{}, fmt.Errorf("recv %d bytes from %s: %w", m.Bytes, g.name(from), err)
		}
	}
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	r := g.fresh("recv", from, m.Bytes)
	r.arrives, r.upTo = true, upTo
	return r.request(r.begin(tag, m, after))
}

// request returns what stands for a message that has begun, unless it has not.
func (r *message) request(err error) (Request, error) {
	if err != nil {
		return Request{}, err
	}
	return Request{r, r.number}, nil
}

// begin hands the pieces of m to the transport or the carrier.
func (r *message) begin(tag int, m tensor.Mem, after device.Event) error {
	longest := r.g.o.Piece
	for off := int64(0); ; off += longest {
		length := min(longest, m.Bytes-off)
		piece := tensor.Mem{Space: m.Space} // absent if empty: it would begin where m's memory ends
		if length > 0 {
			piece = m.Span(off, length)
		}
		var h Handle
		var err error
		if r.verb == "send" {
			h, err = r.g.isend(r.peer, tag, piece, r.stamp, after)
		} else {
			h, err = r.g.irecv(r.peer, tag, piece, r.upTo, after)
		}
		if err != nil {
			return r.explain(err)
		}
		r.handles = append(r.handles, h)
		if length < longest {
			return nil
		}
	}
}

// Test reports whether the message is done, and drives it. An error counts as
// done. Once done, it keeps answering the same. It is no wait: a virtual clock
// does not move, whatever has come in.
func (q Request) Test() (bool, error) {
	r := q.m
	if r == nil || r.number != q.number {
		return true, nil
	}
	clock := r.g.o.Clock
	clock.Pause()
	defer clock.Resume()
	done, err := r.test(0)
	if done && err == nil && !r.arrives { // else Wait has yet to move the clock
		r.recycle()
	}
	return done, err
}

// test drives the message for as long as a Handle's Test does.
func (r *message) test(spin time.Duration) (bool, error) {
	for !r.done {
		if r.next == len(r.handles) {
			r.done = true
			break
		}
		done, got, err := r.handles[r.next].Test(spin)
		switch {
		case err != nil:
			r.done, r.err = true, r.explain(r.g.blame(r.peer, err))
		case !done:
			return false, nil
		case r.wrong(got.Bytes):
			r.done, r.err = true, r.explain(fmt.Errorf("the message has %d bytes", r.received+got.Bytes))
		default:
			if r.verb == "recv" {
				r.stamp = got.Stamp
				r.received += got.Bytes
			}
			r.next++
		}
	}
	return true, r.err
}

// wrong reports whether the next piece of an exact receive has another length than
// it should.
func (r *message) wrong(bytes int64) bool {
	return r.verb == "recv" && !r.upTo && bytes != min(r.g.o.Piece, r.bytes-r.received)
}

// explain says which transfer an error belongs to.
func (r *message) explain(err error) error {
	quantity, preposition := "", "to"
	if r.verb == "recv" {
		preposition = "from"
	}
	if r.upTo {
		quantity = "up to "
	}
	return fmt.Errorf("%s %s%d bytes %s %s: %w", r.verb, quantity, r.bytes, preposition, r.g.name(r.peer), err)
}

// name describes a rank of the group by its rank in the world.
func (g *Group) name(rank int) string {
	p := g.peers[rank]
	return fmt.Sprintf("rank %d (host %s, pid %d)", p.World, p.Host, p.PID)
}
