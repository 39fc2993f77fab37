package comm

import (
	"fmt"
	"time"

	"dynmo/src/tensor"
)

// PingPong exchanges messages, at least 1, with a peer that calls the same. It returns the mean
// time of one message, in wall-clock seconds: half a round trip. The lower rank sends out and
// receives in. The other rank sends back the message that it received. Both spans have one length
// on both ranks.
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
