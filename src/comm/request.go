package comm

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Request is a message under way, as Send and Recv return it. A Request may be copied. Test and
// Wait may be called again after the message is done. A zero Request is done.
type Request struct {
	m      *message
	number uint64 // of this message: the group uses the record m again for later messages
}

// message is the record of a message under way.
type message struct {
	g        *Group
	number   uint64 // messages it stood for before
	sends    bool
	upTo     bool // receive: the message may be shorter than bytes
	reaches  bool // receive: a wait moves the clock to the arrival
	peer     int
	bytes    int64
	received int64    // receive: bytes of the pieces that are done
	stamp    float64  // arrival of the message, seconds; of a receive once it is done
	handles  []Handle // one per piece
	next     int      // the first of handles that is not done
	done     bool
	err      error
}

// newMessage returns a record that is not in use.
func (g *Group) newMessage(sends bool, peer int, bytes int64) *message {
	var r *message
	if last := len(g.idle) - 1; last >= 0 {
		r, g.idle = g.idle[last], g.idle[:last]
	} else {
		r = new(message)
	}
	*r = message{g: g, number: r.number, handles: r.handles[:0], sends: sends, peer: peer, bytes: bytes}
	return r
}

// recycle frees the record of a message that is done without an error. The next message in the
// record has another number than the requests of this message.
func (r *message) recycle() {
	r.number++
	r.g.idle = append(r.g.idle, r)
}

// Send begins to send m to a rank, once the event after has happened (nil: at once). m must not
// change until the request is done, and must not lie on Go's heap.
//
// m.Space chooses the way: tensor.Host the Transport, tensor.Device the DeviceTransport. That also
// holds for an empty m. The receiver's memory must have the same Space. Send of device memory in a
// group without a DeviceTransport returns an error.
//
// Messages longer than Options.Piece travel in pieces of that size. The last piece is shorter, even
// empty, so that the receiver always notices an unexpected length.
//
// Send does not move the rank's virtual clock. On a virtual clock the message departs as soon as
// earlier messages to the same rank have left the link (see Network). So if k equal messages are
// sent at once, the last message arrives latency + k·bytes/bandwidth later.
func (g *Group) Send(to, tag int, m tensor.Mem, after device.Event) (Request, error) {
	g.check(to, tag)
	return g.newMessage(true, to, m.Bytes).start(tag, m, after)
}

// Recv begins to receive exactly m.Bytes from a rank into m, once the event after has happened (nil:
// at once). Nothing else uses m from then on. A message of another length is an error of Wait or
// Test. The run should end then: an MPI library may report a message that is too long after it has
// written past m (Open MPI 4.1 does). Wait moves a virtual clock to the message's arrival (see
// Network).
func (g *Group) Recv(from, tag int, m tensor.Mem, after device.Event) (Request, error) {
	return g.recv(from, tag, m, false, after)
}

// RecvUpTo does what Recv does, except that the message may be shorter than m. Request.Received
// returns the message's length. The bytes of m beyond the message's last byte keep their values.
// RecvUpTo panics unless m is shorter than Options.Piece: the message must fit into one piece.
func (g *Group) RecvUpTo(from, tag int, m tensor.Mem, after device.Event) (Request, error) {
	if m.Bytes >= g.o.Piece {
		panic("comm: RecvUpTo of more than one piece")
	}
	return g.recv(from, tag, m, true, after)
}

// Piece returns Options.Piece in bytes. RecvUpTo needs memory that is shorter than Piece.
func (g *Group) Piece() int64 { return g.o.Piece }

func (g *Group) recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Request, error) {
	g.check(from, tag)
	r := g.newMessage(false, from, m.Bytes)
	r.upTo, r.reaches = upTo, true
	return r.start(tag, m, after)
}

// start begins the message once after has happened.
func (r *message) start(tag int, m tensor.Mem, after device.Event) (Request, error) {
	if after != nil && m.Space == tensor.Host {
		if err := after.Wait(); err != nil {
			return Request{}, r.explain(err)
		}
	}
	r.g.o.Clock.Pause()
	defer r.g.o.Clock.Resume()
	if r.sends {
		r.stamp = r.g.arrival(r.peer, tag, m.Bytes)
	}
	if err := r.begin(tag, m, after); err != nil {
		return Request{}, err
	}
	return Request{r, r.number}, nil
}

// arrival returns when a message that is sent now arrives, in seconds of the virtual clock. It
// occupies the link to the rank until the message has left. A wall clock has no links: arrival
// returns 0.
func (g *Group) arrival(to, tag int, bytes int64) (arrives float64) {
	if g.o.Clock.Kind() == "wall" {
		return 0
	}
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

// begin hands the pieces of m to a transport.
func (r *message) begin(tag int, m tensor.Mem, after device.Event) error {
	longest := r.g.o.Piece
	for off := int64(0); ; off += longest {
		length := min(longest, m.Bytes-off)
		piece := tensor.Mem{Space: m.Space} // absent if empty: it would begin where m's memory ends
		if length > 0 {
			piece = m.Span(off, length)
		}
		h, err := r.beginPiece(tag, piece, after)
		if err != nil {
			return r.explain(err)
		}
		r.handles = append(r.handles, h)
		if length < longest {
			return nil
		}
	}
}

func (r *message) beginPiece(tag int, m tensor.Mem, after device.Event) (Handle, error) {
	switch g := r.g; {
	case m.Space != tensor.Device && r.sends:
		g.o.sent += m.Bytes
		return g.t.Isend(r.peer, tag, m, r.stamp)
	case m.Space != tensor.Device:
		return g.t.Irecv(r.peer, tag, m)
	case g.device == nil:
		return nil, errNoDevice
	case r.sends:
		return g.device.Send(r.peer, tag, m, after)
	default:
		return g.device.Recv(r.peer, tag, m, r.upTo, after)
	}
}

var errNoDevice = errors.New("this group has no transport of device memory")

// Test drives the message without waiting, and reports whether the message is done. A message that
// failed is done too. Later calls give the same answer. Test does not move a virtual clock: only
// Wait does.
func (q Request) Test() (bool, error) {
	r := q.m
	if r == nil || r.number != q.number {
		return true, nil
	}
	clock := r.g.o.Clock
	clock.Pause()
	defer clock.Resume()
	done, err := r.test(0)
	if done && err == nil && !r.reaches { // else Wait has yet to move the clock
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
			if !r.sends {
				r.stamp = got.Stamp
				r.received += got.Bytes
			}
			r.next++
		}
	}
	return true, r.err
}

// await drives the message until it is done, or gives up.
func (r *message) await() error { return r.g.wait(r, r.peer, r.bytes) }

func (r *message) handle() Handle { return r.handles[r.next] }

// wrong reports whether the next piece of an exact receive has another length than
// it should.
func (r *message) wrong(bytes int64) bool {
	return !r.sends && !r.upTo && bytes != min(r.g.o.Piece, r.bytes-r.received)
}

// explain adds to an error which message it belongs to.
func (r *message) explain(err error) error {
	verb, preposition := "send", "to"
	if !r.sends {
		verb, preposition = "recv", "from"
	}
	if r.upTo {
		verb += " up to"
	}
	return fmt.Errorf("%s %d bytes %s %v: %w", verb, r.bytes, preposition, r.g.peers[r.peer], err)
}
