package comm

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Part is one message of a round: memory that goes to another rank, or that what comes
// from it is received into.
type Part struct {
	Rank int
	Mem  tensor.Mem
}

// Round is a round of messages under way, as Exchange returns it. It may be copied; the
// round's record is used again once a Wait has returned. A zero Round is done.
type Round struct {
	r      *round
	number uint64 // of the round that r stood for
}

// round is the record of a round under way.
type round struct {
	g        *Group
	number   uint64      // rounds it stood for before
	requests []Request   // host memory: the receives, then the sends
	device   RoundHandle // device memory; else nil
	peer     int         // one of the ranks of the round
}

// Exchange begins a round of messages. It sends the memory of sends to their ranks and receives
// into the memory of recvs, all once after has happened (nil: at once). The k-th part that a rank
// sends to another is received into the k-th part there, of the same length. A part without bytes
// carries nothing. All memory of a round is in one space, and not on Go's heap. No part is sent to
// this rank itself.
//
// All ranks begin the rounds of a group, and of groups split from one group, in one order: a
// later round may wait until an earlier one is under way. A rank that has no part with bytes
// may leave a round out. Rounds of one group may have the same tag.
//
// On a virtual clock a part is a message as Send and Recv know it, and the sends depart in
// the order of the parts.
func (g *Group) Exchange(tag int, sends, recvs []Part, after device.Event) (Round, error) {
	r := g.newRound()
	space := tensor.Host
	for _, parts := range [2][]Part{recvs, sends} {
		for _, p := range parts {
			if p.Mem.Bytes > 0 {
				g.check(p.Rank, tag)
				if r.peer >= 0 && p.Mem.Space != space {
					panic("comm: parts of a round in host and in device memory")
				}
				r.peer, space = p.Rank, p.Mem.Space
			}
			if p.Rank == g.rank {
				panic("comm: a part of a round with this rank itself")
			}
		}
	}
	if r.peer < 0 {
		g.rounds = append(g.rounds, r)
		return Round{}, nil
	}
	var err error
	switch {
	case space == tensor.Host:
		err = r.begin(tag, sends, recvs, after)
	case g.device == nil:
		err = errNoDevice
	default:
		r.device, err = g.device.Exchange(sends, recvs, after)
	}
	return Round{r, r.number}, err
}

// newRound returns a record that is not in use.
func (g *Group) newRound() *round {
	last := len(g.rounds) - 1
	if last < 0 {
		return &round{g: g, peer: -1}
	}
	r := g.rounds[last]
	g.rounds = g.rounds[:last]
	r.requests, r.device, r.peer = r.requests[:0], nil, -1
	return r
}

// begin begins the messages of a round of host memory.
func (r *round) begin(tag int, sends, recvs []Part, after device.Event) error {
	for _, p := range recvs {
		if p.Mem.Bytes > 0 {
			req, err := r.g.Recv(p.Rank, tag, p.Mem, after)
			if err != nil {
				return err
			}
			r.requests = append(r.requests, req)
		}
	}
	for _, p := range sends {
		if p.Mem.Bytes > 0 {
			req, err := r.g.Send(p.Rank, tag, p.Mem, after)
			if err != nil {
				return err
			}
			r.requests = append(r.requests, req)
		}
	}
	return nil
}

// Test reports whether all messages of the round have arrived, on the device too, and drives
// them. It is no wait: no stream waits for them, and a virtual clock does not move. Wait
// follows in any case.
func (q Round) Test() (bool, error) {
	r := q.r
	if r == nil || r.number != q.number {
		return true, nil
	}
	if r.device != nil {
		done, err := r.device.Arrived()
		if err != nil {
			err = r.explain(r.g.blame(r.peer, err))
		}
		return done, err
	}
	all := true
	for _, req := range r.requests {
		done, err := req.Test()
		if err != nil {
			return true, err
		}
		all = all && done
	}
	return all, nil
}

// Arrived does what Test does, but on a virtual clock messages have arrived once the clock has
// come to their arrival, whenever they really do. There it lets up to abreast pass for them.
func (q Round) Arrived() (bool, error) {
	if q.r == nil || q.r.g.o.Clock.Kind() != "virtual" {
		return q.Test()
	}
	clock := q.r.g.o.Clock
	clock.Pause()
	defer clock.Resume()
	for start := time.Now(); ; {
		done, err := q.Test()
		if err != nil || done {
			return done && q.reached(clock.Now()), err
		}
		left := abreast - time.Since(start)
		if left <= 0 {
			return false, nil
		}
		q.r.rest(left)
	}
}

// rest lets time pass until the next look at a round: until the first message that is
// missing has arrived, but no longer than most; pollEvery if its transport does not tell.
func (r *round) rest(most time.Duration) {
	for _, req := range r.requests {
		if m := req.m; m.number == req.number && !m.done {
			if s, ok := m.handle().(Sleeper); ok {
				s.Sleep(most)
				return
			}
			break
		}
	}
	nap := unix.NsecToTimespec(int64(pollEvery))
	_ = unix.Nanosleep(&nap, nil) // a signal may end it early: then the look is early
}

// abreast is by how much a rank may really be behind another whose virtual clock shows the
// same: ranks share cores, so it has yet to compute what the other has. Without this time a
// rank would find messages late that are not.
const abreast = 200 * time.Millisecond

// reached reports whether all messages of a round that are there have arrived by now.
func (q Round) reached(now float64) bool {
	if q.r.number != q.number {
		return true
	}
	return !slices.ContainsFunc(q.r.requests, func(req Request) bool {
		m := req.m
		return m.number == req.number && m.reaches && m.stamp > now
	})
}

// Wait returns once work that is enqueued from then on finds what was received, and may
// overwrite what was sent; where memory is a device's, the host need not wait for that. A
// virtual clock moves to the arrival of the last message. It looks for the dead and gives up
// as Request.Wait does.
func (q Round) Wait() error {
	r := q.r
	if r == nil || r.number != q.number {
		return nil
	}
	if r.device != nil {
		r.g.o.Clock.Pause()
		defer r.g.o.Clock.Resume()
		if err := r.g.wait(r, r.peer, 0); err != nil {
			return err
		}
	}
	for _, req := range r.requests {
		if err := req.Wait(); err != nil {
			return err
		}
	}
	r.number++
	r.g.rounds = append(r.g.rounds, r)
	return nil
}

// test drives a round of device memory.
func (r *round) test(spin time.Duration) (bool, error) {
	done, _, err := r.device.Test(spin)
	if err != nil {
		err = r.explain(r.g.blame(r.peer, err))
	}
	return done, err
}

func (r *round) handle() Handle { return r.device }

// explain adds to an error which round it belongs to.
func (r *round) explain(err error) error { return fmt.Errorf("exchange: %w", err) }
