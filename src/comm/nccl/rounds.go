//go:build cgo

package nccl

import (
	"fmt"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
)

// rounds is what the ranks of a world do together: rounds of messages, and parts split
// off, one behind the other, in the order in which all ranks begin them.
type rounds struct {
	*family
	domain
	control control
	rank    int
	opening *opening // nil: by a split
	queue   []agreeable
	inboxes []*inbox // of notices by rank, made when first needed
	begun   int      // rounds so far
	spare   []*round // that can be used again
	err     error    // of every call from now on
}

// agreeable is a job that is issued once other ranks agree.
type agreeable interface {
	job
	agreed() (bool, error)
}

// Drive takes the rounds as far as they go without waiting.
func (w *rounds) Drive() error {
	if w.err != nil {
		return w.err
	}
	if err := w.drive(); err != nil {
		return w.fail(err)
	}
	return nil
}

// fail ends all rounds with an error, which it returns.
func (w *rounds) fail(err error) error {
	if w.err == nil {
		w.err = named(err)
		abort([]*domain{&w.domain})
	}
	return w.err
}

// Close ends the communicator. Collective over the world.
func (w *rounds) Close() error {
	if w.err != nil {
		return w.err
	}
	if err := w.close(closeBy([]*domain{&w.domain})); err != nil {
		return w.fail(fmt.Errorf("close: %w", err))
	}
	w.err = errClosed
	return nil
}

func (w *rounds) close(deadline *comm.Deadline) error {
	if len(w.queue) > 0 {
		return errUnderWay
	}
	if err := w.domain.close(deadline); err != nil {
		return err
	}
	for _, b := range w.inboxes {
		if b != nil {
			b.close()
		}
	}
	return w.control.release(deadline)
}

func (w *rounds) drive() error {
	if err := w.control.drive(); err != nil {
		return fmt.Errorf("control messages: %w", err)
	}
	if w.opening != nil {
		if err := w.opening.drive(); err != nil {
			return err
		}
	}
	for {
		idle, err := w.domain.idle()
		if err != nil {
			return w.explain(err)
		}
		if !idle || len(w.queue) == 0 {
			return nil
		}
		if agreed, err := w.queue[0].agreed(); err != nil || !agreed {
			return err
		}
		next := w.queue[0]
		w.queue = slices.Delete(w.queue, 0, 1)
		w.do(next)
	}
}

// explain adds to an error what the rounds do.
func (w *rounds) explain(err error) error {
	if r, ok := w.current.(*round); ok {
		return fmt.Errorf("a round with %s: %w", r.who(), err)
	}
	return err
}

// inbox returns where the notices of a rank arrive.
func (w *rounds) inbox(rank int) *inbox {
	if w.inboxes[rank] == nil {
		w.inboxes[rank] = &inbox{k: &w.control, from: rank, tag: tagRound}
	}
	return w.inboxes[rank]
}

// round is one rank's side of a round: a comm.RoundHandle.
type round struct {
	w            *rounds
	number       int         // of the rounds of this rank
	sends, recvs []comm.Part // by ranks of the world, none without bytes
	partners     []partner   // the other ranks that have parts
	start        moment
	told         bool // the partners know that this rank is ready
	heard        int  // number of partners that have said that they are ready
	event        device.Event
	enqueued     bool
}

// partner is another rank of a round, and what is sent to it and received.
type partner struct {
	rank       int
	sent, recv int64
}

// newRound begins a round of parts, whose ranks are translated by a table, once after has
// happened. Parts without bytes are left out; there are others.
func (w *rounds) newRound(sends, recvs []comm.Part, world []int, after device.Event) *round {
	r := &round{w: w}
	if last := len(w.spare) - 1; last >= 0 {
		r, w.spare = w.spare[last], w.spare[:last]
	}
	*r = round{
		w: w, number: w.begun, start: w.moment(r.start, after), event: r.event,
		sends: r.sends[:0], recvs: r.recvs[:0], partners: r.partners[:0],
	}
	w.begun++
	for _, p := range sends {
		if p.Mem.Bytes > 0 {
			r.sends = append(r.sends, comm.Part{Rank: world[p.Rank], Mem: p.Mem})
			r.partner(world[p.Rank]).sent += p.Mem.Bytes
		}
	}
	for _, p := range recvs {
		if p.Mem.Bytes > 0 {
			r.recvs = append(r.recvs, comm.Part{Rank: world[p.Rank], Mem: p.Mem})
			r.partner(world[p.Rank]).recv += p.Mem.Bytes
		}
	}
	w.queue = append(w.queue, r)
	return r
}

// partner returns what the round has with a rank.
func (r *round) partner(rank int) *partner {
	i := slices.IndexFunc(r.partners, func(p partner) bool { return p.rank == rank })
	if i < 0 {
		i, r.partners = len(r.partners), append(r.partners, partner{rank: rank})
	}
	return &r.partners[i]
}

// agreed reports whether all ranks of the round are ready for it, and tells them once
// this one is.
func (r *round) agreed() (bool, error) {
	if !r.told {
		if happened, err := r.start.happened(); err != nil || !happened {
			return false, err
		}
		for _, p := range r.partners {
			if err := r.w.control.notify(p.rank, tagRound, notice{bytes: p.sent, some: true}); err != nil {
				return false, err
			}
		}
		r.told = true
	}
	for r.heard < len(r.partners) {
		p := r.partners[r.heard]
		data, err := r.w.inbox(p.rank).next(noticeBytes)
		if err != nil || data == nil {
			return false, err
		}
		if n := decode(data); n.bytes != p.recv {
			return false, fmt.Errorf("in round %d %s sends %d bytes, but %d are expected", r.number, r.w.control.who(p.rank), n.bytes, p.recv)
		}
		r.heard++
	}
	return true, nil
}

// issue gives NCCL the messages of the round as one group.
func (r *round) issue(d *domain, k *communicator) (communicator, error) {
	return communicator{}, d.group(r, k)
}

func (r *round) enqueue(d *domain, k *communicator) error {
	for _, p := range r.recvs {
		if err := k.recv(p.Mem, p.Rank, d.handle()); err != nil {
			return err
		}
	}
	for _, p := range r.sends {
		if err := k.send(p.Mem, p.Rank, d.handle()); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) settle(d *domain) { r.event, r.enqueued = d.stream.Record(r.event), true }

// who names the ranks of the round.
func (r *round) who() string {
	text := r.w.control.who(r.partners[0].rank)
	if more := len(r.partners) - 1; more > 0 {
		text += fmt.Sprintf(" and %d others", more)
	}
	return text
}

// Test reports whether the round is on the stream, for which the compute stream waits
// then.
func (r *round) Test(spin time.Duration) (bool, comm.Arrival, error) {
	for start := time.Now(); ; {
		if err := r.w.Drive(); err != nil {
			return true, comm.Arrival{}, err
		}
		if r.enqueued {
			r.w.compute.After(r.event)
			r.w.spare = append(r.w.spare, r)
			return true, comm.Arrival{}, nil
		}
		if time.Since(start) >= spin {
			return false, comm.Arrival{}, nil
		}
	}
}

// Arrived reports whether the GPU is done with the round.
func (r *round) Arrived() (bool, error) {
	if err := r.w.Drive(); err != nil {
		return true, err
	}
	if !r.enqueued {
		return false, nil
	}
	done, err := r.event.Done()
	if err != nil {
		return true, r.w.fail(err)
	}
	return done, nil
}
