package pipeline

import (
	"errors"
	"fmt"

	"dynmo/src/model"
	"dynmo/src/tensor"
)

// inOnePiece reports whether a full microbatch's message over a boundary travels in
// one piece: else its length must be known to the receiver.
func (r *Runner) inOnePiece(w model.Width) bool {
	return w.Bytes(r.x, r.x.N()) < r.group.Piece()
}

// sendActivations begins to send the activations of the tokens that leave a chunk. If some tokens
// are absent, or may have departed, it also sends their Index, in host memory. A chain without
// layers that select tokens sends full microbatches only.
func (r *Runner) sendActivations(c *chunk, m int) (err error) {
	b := c.active[m]
	batch := b.leaving()
	if batch.Tokens < r.x.N() && !c.backwards.upTo {
		return errors.New("tokens have left before a boundary that is too long for messages of unknown length")
	}
	if b.sends[0], err = r.send(c.next.peer, c.next.tag.of(m), c.output(r.x, m), r.ready()); err == nil && batch.Index.Bytes > 0 {
		b.sends[1], err = r.send(c.next.peer, c.next.index.of(m), batch.OnHost(), nil)
	}
	return err
}

// receiveActivations waits for the activations that enter a chunk. Where layers
// before it select tokens, their number follows from the length, and which they are
// from their Index; gradients go back for as many.
func (r *Runner) receiveActivations(c *chunk, m int) error {
	b, err := c.open(r, m)
	if err != nil {
		return err
	}
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
	if 0 < tokens && (tokens < r.x.N() || r.x.Propagates) {
		req, err := r.group.Recv(c.forwards.peer, c.forwards.index.of(m), room.Span(0, int64(tokens)*tensor.I32.Size()), nil)
		if err != nil {
			return err
		}
		if err := req.Wait(); err != nil {
			return err
		}
	}
	return b.received.Select(tokens)
}
