package comm

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Part is one message of a round.
type Part struct {
	Rank int        // the other rank, in the group of the round
	Mem  tensor.Mem // memory that is sent to Rank, or that a message of Rank is received into
}

// Round is a round of messages under way, as Exchange returns it. A Round may be copied. The caller
// must call Wait, whatever Test and Arrived return. A zero Round is done.
type Round struct {
	r      *round
	number uint64 // of this round: the group uses the record r again for later rounds
}

// round is the record of a round under way.
type round struct {
	g        *Group
	number   uint64      // rounds it stood for before
	requests []Request   // host memory: the receives, then the sends
	device   RoundHandle // device memory; else nil
	peer     int         // one of the ranks of the round
}

// Exchange begins a round of messages, once the event after has happened (nil: at once). It sends the
// memory of sends to their ranks and receives into the memory of recvs. If rank a sends several
// parts to rank b, they are received in order into b's parts of rank a. Both parts of a message have
// the same length. A part without bytes carries nothing. All memory of a round is in one space, and
// not on Go's heap. No part is sent to this rank itself.
//
// Callers must begin rounds in one order on all ranks. That holds for all rounds of a group and of
// the Rows and Chains that are split from it: a round begins to travel only after this rank's earlier
// rounds. A rank may leave out a round in which it has no part with bytes. Rounds of one group may
// have the same tag.
//
// On a virtual clock every part costs as much as one message of Send. The sends depart in the order
// of the parts.
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

// Test drives the round without waiting, and reports whether all its messages have arrived (of a
// round of device memory, on the device). Test does not move a virtual clock and makes no stream
// wait. So the caller still calls Wait afterwards, also where Test returned true.
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

// Arrived does what Test does on a wall clock. On a virtual clock a message has arrived if this
// rank's clock shows at least the message's arrival time. The message must also be here really, but
// its sender may lag behind in real time. So Arrived waits up to 200 ms of real time for messages.
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
		left := mostLag - time.Since(start)
		if left <= 0 {
			return false, nil
		}
		q.r.rest(left)
	}
}

// rest sleeps until the next look at a round. If the transport can sleep, rest returns when the first
// missing message has arrived, or after most. Otherwise it sleeps for pollEvery.
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

// mostLag is how much real time a rank may lag behind another rank with the same virtual time. Ranks
// share cores, so one rank computes before the other. Without this allowance Arrived would take
// messages for late that are not late on the virtual clock.
const mostLag = 200 * time.Millisecond

// reached reports whether the virtual arrival times of all messages of a round are at most now.
func (q Round) reached(now float64) bool {
	if q.r.number != q.number {
		return true
	}
	return !slices.ContainsFunc(q.r.requests, func(req Request) bool {
		m := req.m
		return m.number == req.number && m.reaches && m.stamp > now
	})
}

// Wait returns once later work finds the received memory and may overwrite the sent memory. For host
// memory later work is the caller's own. For device memory it is work that is enqueued from then on:
// Wait does not wait until the device is done. Wait moves a virtual clock to the arrival of the last
// message. It looks for dead ranks and gives up as Request.Wait does.
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
