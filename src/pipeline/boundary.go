package pipeline

import (
	"errors"
	"fmt"

	"dynmo/src/model"
	"dynmo/src/tensor"
)

// short reports whether messages over a boundary may be shorter than those of a
// full microbatch.
func (r *Runner) short(w model.Width) bool {
	return w.Bytes(r.x, r.x.N()) < r.group.Piece()
}

// hand sends the activations of the tokens that leave a chunk, and behind them
// where these were in the full microbatch, if not all are there.
func (r *Runner) hand(c *chunk, m int) (err error) {
	b := c.active[m]
	batch := b.leaving()
	if batch.Tokens < r.x.N() && !c.backwards.upTo {
		return errors.New("tokens have left before a boundary that is too long for messages of unknown length")
	}
	if b.sends[0], err = r.send(c.next.peer, c.next.tag(m), c.output(r.x, m), r.ready()); err == nil && batch.Index.Bytes > 0 {
		b.sends[1], err = r.send(c.next.peer, c.next.index(m), batch.OnHost(), nil)
	}
	return err
}

// receive waits for the activations that enter a chunk, and makes their batch.
func (r *Runner) receive(c *chunk, b *buffer, m int) (err error) {
	var bytes int64
	if b.inp, bytes, err = c.forwards.wait(m); err != nil || !c.forwards.upTo {
		return err
	}
	tokens, ok := c.entering.Tokens(r.x, bytes)
	if !ok {
		return fmt.Errorf("activations of %d bytes are no whole number of tokens", bytes)
	}
	room, err := b.received.Room()
	if err != nil {
		return err
	}
	b.entering = &b.received.Batch
	if 0 < tokens && tokens < r.x.N() {
		req, err := r.group.Recv(c.forwards.peer, c.forwards.index(m), room.Span(0, int64(tokens)*tensor.I32.Size()), nil)
		if err != nil {
			return err
		}
		if err := req.Wait(); err != nil {
			return err
		}
	}
	return b.received.Select(tokens)
}
