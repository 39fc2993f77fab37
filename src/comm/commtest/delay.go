package commtest

import (
	"errors"
	"fmt"
	"runtime"

	"dynmo/src/comm"
)

// virtualDelays: every message is delayed by the factor of its sender, receiver, tag and number, in
// any group and by any call that sends it. It occupies its link longer by the same factor. Messages
// go round a ring. Rank 0 of the split group is the last rank of the world, so a rank within the
// group would give other factors.
func virtualDelays(t comm.Transport) error {
	const rounds = 12
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	late := network
	late.Delay = comm.Delay{Most: 4, Seed: 9}
	g, clock := virtualOn(t, late, 0)
	part := Value(g.Split(0, -g.Rank()))
	const start = 1e6 // all links are free by then
	clock.Advance(start - clock.Now())
	above, below := neighbours(g)
	via := func(k, rank int) (*comm.Group, int) {
		if k%4 > 1 {
			return part, g.Size() - 1 - rank
		}
		return g, rank
	}
	out := onGroup(g)
	for k := range rounds {
		group, to := via(k, above)
		if tag := 1 + k%3; tag == 3 {
			Must(group.SendBytes(to, tag, make([]byte, 1000*k)))
		} else {
			out.add(send(group, to, tag, k, int64(1000*k)))
		}
	}
	if now := clock.Now(); now != start {
		return fmt.Errorf("sending moved the clock from %v to %v", start, now)
	}
	busy, want := 0.0, float64(start)
	for k := range rounds {
		tag := 1 + k%3
		factor := late.Delay.Factor(below, g.Rank(), tag, uint64(k/3))
		if factor < 1 || factor > 4 {
			return fmt.Errorf("a delay by %v, want it in [1, 4]", factor)
		}
		var arrives float64
		busy, arrives = late.Travel(start, busy, int64(1000*k), factor)
		want = max(want, arrives)
		group, from := via(k, below)
		if tag == 3 {
			Value(group.RecvBytes(from, tag))
		} else {
			in := onGroup(group)
			in.recv(from, tag, k, int64(1000*k))
			Must(in.finish())
		}
		if now := clock.Now(); now != want {
			return fmt.Errorf("message %d arrived at %v, want %v: delayed by %v", k, now, want, factor)
		}
	}
	return errors.Join(out.finish(), part.Close())
}
