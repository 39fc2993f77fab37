package comm

import (
	"fmt"
	"time"

	"dynmo/src/tensor"
)

// PingPong sends messages back and forth with a peer, which also calls PingPong. It returns the mean
// time of one message, half a round trip, in wall-clock seconds. messages is the number of round
// trips, at least 1. The lower rank sends out and receives into in. The higher rank receives into in
// and sends in back. out and in have the same length on both ranks; if not, PingPong panics.
func PingPong(g *Group, peer int, out, in tensor.Mem, messages int) (float64, error) {
	const tag = 0
	if out.Bytes != in.Bytes {
		panic("comm: ping-pong of two lengths")
	}
	send := func(m tensor.Mem) error {
		r, err := g.Send(peer, tag, m, nil)
		if err != nil {
			return err
		}
		return r.Wait()
	}
	first := g.rank < peer
	start := time.Now()
	for range messages {
		if first {
			if err := send(out); err != nil {
				return 0, fmt.Errorf("ping-pong: %w", err)
			}
		}
		r, err := g.Recv(peer, tag, in, nil)
		if err == nil {
			err = r.Wait()
		}
		if err == nil && !first {
			err = send(in)
		}
		if err != nil {
			return 0, fmt.Errorf("ping-pong: %w", err)
		}
	}
	return time.Since(start).Seconds() / float64(2*messages), nil
}
