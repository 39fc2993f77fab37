package commtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
)

// network has round numbers, so that a term left out shows.
var network = comm.Network{Latency: 0.25, Bandwidth: 1000}

// virtual returns a group on a virtual clock that reads start and that only messages move. So its
// times are known to the last bit. Pieces are short: a message in many pieces is still one message.
func virtual(t comm.Transport, start float64) (*comm.Group, *device.Clock) {
	return virtualOn(t, network, start)
}

// virtualOn is virtual on another network.
func virtualOn(t comm.Transport, n comm.Network, start float64) (*comm.Group, *device.Clock) {
	clock := device.NewVirtual()
	clock.Pause()
	clock.Advance(-clock.Now()) // to 0 exactly: it ran until it was paused
	clock.Advance(start)
	o := quick()
	o.Clock, o.Network, o.Piece = clock, n, 2048
	return comm.New(t, o), clock
}

// virtualTime: a receive sets the clock to exactly the message's departure plus
// latency plus bytes/bandwidth, or leaves it if it is later; a send moves
// nothing. Messages depart when they are sent, or when the link is free. Rank r
// starts at 100 r, so only rank 0 receives from a later rank, the last one.
func virtualTime(t comm.Transport) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, clock := virtual(t, 100*float64(t.Rank()))
	above, below := neighbours(g)
	free := 0.0 // when the link from below is free
	occupy := func(sent float64, bytes int64) (departs float64) {
		departs = max(sent, free)
		free = departs + float64(bytes)/network.Bandwidth
		return departs
	}
	for round, length := range []int64{8, 0, 3000, 1 << 20} {
		// The sender's time travels apart, inside the message, as a second opinion.
		sent := clock.Now()
		Must(g.SendBytes(above, 1, binary.LittleEndian.AppendUint64(nil, math.Float64bits(sent))))
		out := Value(send(g, above, 2, round, length))
		if now := clock.Now(); now != sent {
			return fmt.Errorf("sending moved the clock from %v to %v", sent, now)
		}
		data := Value(g.RecvBytes(below, 1))
		departed := math.Float64frombits(binary.LittleEndian.Uint64(data))
		want := max(sent, occupy(departed, 8)+network.Seconds(8))
		if now := clock.Now(); now != want {
			return fmt.Errorf("bytes sent at %v arrived at %v, want %v", departed, now, want)
		}
		begin, room := g.Recv, length
		if round == 0 { // a message costs its length, not the room for it
			begin, room = g.RecvUpTo, length+1000
		}
		in := Value(recvInto(g, below, 2, round, length, room, begin))
		for done := false; !done; {
			done = Value(in.request.Test())
			runtime.Gosched()
		}
		if now := clock.Now(); now != want {
			return fmt.Errorf("asking whether a message has come moved the clock from %v to %v", want, now)
		}
		Must(finish(in, out))
		want = max(want, occupy(departed, length)+network.Seconds(length))
		if now := clock.Now(); now != want {
			return fmt.Errorf("%d bytes sent at %v arrived at %v, want %v", length, departed, now, want)
		}
	}
	return nil
}

// virtualLinks: a link takes one message at a time, whatever its group and the call
// that sends it; links to different ranks do not slow each other down. Messages
// take a second each, so the k-th on a link arrives k seconds and a latency
// after all were sent.
func virtualLinks(t comm.Transport) error {
	const length, rounds = 1000, 8
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, clock := virtual(t, 0)
	part := Value(g.Split(0, -g.Rank())) // other ranks, the same links
	start := clock.Now()                 // the same on all ranks: they began together and took the same steps
	via := func(k, rank int) (*comm.Group, int) {
		if k%2 == 1 {
			return part, g.Size() - 1 - rank
		}
		return g, rank
	}
	above, below := neighbours(g)
	out := onGroup(g)
	for k := range rounds {
		for _, to := range []int{above, below} {
			group, to := via(k, to)
			if k%4 < 2 {
				out.add(send(group, to, 1, k, length))
			} else if err := group.SendBytes(to, 2, make([]byte, length)); err != nil {
				return err
			}
		}
	}
	if now := clock.Now(); now != start {
		return fmt.Errorf("sending moved the clock from %v to %v", start, now)
	}
	arrived := make(map[int]int) // messages, by rank
	for k := range rounds {
		for _, from := range []int{below, above} {
			arrived[from]++
			want := start + float64(arrived[from]) + network.Latency
			group, there := via(k, from)
			if k%4 < 2 {
				in := onGroup(group)
				in.recv(there, 1, k, length)
				Must(in.finish())
			} else if _, err := group.RecvBytes(there, 2); err != nil {
				return err
			}
			if now := clock.Now(); now != want {
				return fmt.Errorf("message %d from rank %d arrived %v after it was sent, want %v",
					arrived[from], from, now-start, want-start)
			}
		}
	}
	return errors.Join(out.finish(), part.Close())
}

// virtualBarrier: no rank leaves a barrier before the last has entered it.
func virtualBarrier(t comm.Transport) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := func(rank int) float64 { return float64((rank * 7) % 5 * 100) }
	g, clock := virtual(t, start(t.Rank()))
	part := Value(g.Split(0, 0)) // stamps go on in the parts
	Must(part.Barrier())
	latest := 0.0
	for rank := range g.Size() {
		latest = max(latest, start(rank))
	}
	if now := clock.Now(); now < latest || now > latest+20*network.Latency {
		return fmt.Errorf("left the barrier at %v, the last entered it at %v", now, latest)
	}
	return part.Close()
}

// elsewhere makes all ranks but this one seem to be on another host.
type elsewhere struct{ comm.Transport }

func (e elsewhere) Peer(rank int) comm.Peer {
	p := e.Transport.Peer(rank)
	if rank != e.Rank() {
		p.Host += ".elsewhere"
	}
	return p
}

func (e elsewhere) Split(color, key int) (comm.Transport, error) {
	t, err := e.Transport.Split(color, key)
	if t == nil {
		return nil, err
	}
	return elsewhere{t}, err
}

// deadline: a peer that cannot be seen and does not answer is named within the
// deadline, which a split group shares; then the same receive still works.
func deadline(t comm.Transport) error {
	g := comm.New(elsewhere{t}, quick())
	part := Value(g.Split(0, 0))
	g.SetDeadline(300 * time.Millisecond)
	return late(part, 300*time.Millisecond, func() { g.SetDeadline(hung) })
}

// patience: the same for a peer that is seen alive, for which the deadline is
// not the limit.
func patience(t comm.Transport) error {
	const limit = 400 * time.Millisecond
	g := comm.New(t, comm.Options{Deadline: 50 * time.Millisecond, Patience: limit})
	return late(g, limit, func() { g.SetDeadline(hung) })
}

// late makes rank 0 wait for its neighbour, which does not send before rank 0 asks.
func late(g *comm.Group, limit time.Duration, relax func()) error {
	if g.Size() == 1 {
		return nil
	}
	above, below := neighbours(g)
	if g.Rank() != 0 {
		relax()
	}
	if g.Rank() == 0 {
		in := Value(recv(g, below, 3, 0, 4096))
		start := time.Now()
		err := in.request.Wait()
		waited := time.Since(start)
		if !errors.Is(err, comm.ErrNoAnswer) {
			return fmt.Errorf("a peer that never sends: %v, want %q", err, comm.ErrNoAnswer)
		}
		want := fmt.Sprintf("recv 4096 bytes from rank %d (host ", g.Peer(below).World)
		if !strings.HasPrefix(err.Error(), want) {
			return fmt.Errorf("error %q does not begin with %q", err, want)
		}
		if waited < limit || waited > limit+5*time.Second {
			return fmt.Errorf("gave up after %v, want %v", waited, limit)
		}
		relax()
		Must(g.SendBytes(below, 4, nil))
		if err := finish(in); err != nil {
			return fmt.Errorf("after the deadline: %w", err)
		}
		return g.Barrier()
	}
	if above == 0 {
		Value(g.RecvBytes(0, 4))
		b := onGroup(g)
		b.send(above, 3, 0, 4096)
		Must(b.finish())
	}
	return g.Barrier()
}
