package comm

import (
	"fmt"
	"slices"
	"time"
)

// PingPong exchanges rounds messages of some bytes with a peer that calls the
// same, and returns the median time of one message, in wall-clock seconds:
// half a round trip. The lower rank sends first. rounds is at least 1.
func PingPong(g *Group, peer int, bytes int64, rounds int) (float64, error) {
	const tag = 0
	m, err := g.Alloc(bytes)
	if err != nil {
		return 0, err
	}
	defer g.Free(m)
	send := func() error {
		r, err := g.Send(peer, tag, m, nil)
		if err != nil {
			return err
		}
		return r.Wait()
	}
	recv := func() error {
		r, err := g.Recv(peer, tag, m)
		if err != nil {
			return err
		}
		return r.Wait()
	}
	first, second := send, recv
	if g.rank > peer {
		first, second = recv, send
	}
	seconds := make([]float64, rounds)
	for i := range seconds {
		start := time.Now()
		if err := first(); err != nil {
			return 0, fmt.Errorf("ping-pong: %w", err)
		}
		if err := second(); err != nil {
			return 0, fmt.Errorf("ping-pong: %w", err)
		}
		seconds[i] = time.Since(start).Seconds() / 2
	}
	slices.Sort(seconds)
	return seconds[rounds/2], nil
}
