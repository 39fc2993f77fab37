package commtest

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// split returns a group of all ranks, the last one first, whose messages of device
// memory travel in pieces of 1000 bytes.
func (r *Rank) split() (*comm.Group, error) {
	o := quick()
	o.Piece, o.DeviceTransport = 1000, r.openTransport
	return comm.New(r.Transport, o).Split(0, -r.Rank())
}

// ringStep is a message of device memory to the rank above in the ring of a group,
// and one from the rank below.
type ringStep struct {
	mem        tensor.Mem // to be received into
	want       []byte
	recv, send comm.Request
}

// beginStep begins to send a pattern up the ring of g, and to receive one.
func (r *Rank) beginStep(g *comm.Group, tag, index int, length int64) (m ringStep, err error) {
	above, below := neighbours(g)
	both, err := r.memories(length, length)
	if err != nil {
		return m, err
	}
	m.mem, m.want = both[0], pattern(below, g.Rank(), index, length)
	r.write(both[1], g.Rank(), above, index)
	if m.recv, err = g.Recv(below, tag, m.mem, nil); err != nil {
		return m, err
	}
	m.send, err = g.Send(above, tag, both[1], r.Compute.Record(nil))
	return m, err
}

// endStep waits for both messages and compares what was received.
func (r *Rank) endStep(m ringStep) error {
	if err := errors.Join(m.recv.Wait(), m.send.Wait()); err != nil {
		return err
	}
	return r.compare(m.mem, m.want)
}

// group: a Group sends device memory in pieces, waits for it, and closes.
func (r *Rank) group() error {
	g, err := r.split()
	if err != nil {
		return err
	}
	for i, length := range []int64{0, 1, 999, 1000, 1001, 4000, 54321} {
		m, err := r.beginStep(g, i, i, length)
		if err == nil {
			err = r.endStep(m)
		}
		if err != nil {
			return fmt.Errorf("%d bytes: %w", length, err)
		}
	}
	if err := r.groupUpTo(g); err != nil {
		return fmt.Errorf("up to: %w", err)
	}
	return errors.Join(g.Close(), r.DeviceTransport.Close())
}

// groupUpTo sends messages up the ring of a group into memory that has room for more.
func (r *Rank) groupUpTo(g *comm.Group) error {
	above, below := neighbours(g)
	for i, length := range []int64{0, 1, 999, 500} {
		both, err := r.memories(999, 999)
		if err != nil {
			return err
		}
		full := both[0].Span(0, length) // of no bytes, too, it is device memory
		r.write(full, g.Rank(), above, i)
		in, err := g.RecvUpTo(below, 5, both[1], nil)
		if err != nil {
			return err
		}
		out, err := g.Send(above, 5, full, r.Compute.Record(nil))
		if err != nil {
			return err
		}
		received, err := in.Received()
		if err = errors.Join(err, out.Wait()); err != nil {
			return err
		}
		if received != length {
			return fmt.Errorf("received %d bytes, want %d", received, length)
		}
		if err := r.compare(both[1].Span(0, length), pattern(below, g.Rank(), i, length)); err != nil {
			return err
		}
	}
	return nil
}

// hostBetween: messages of host memory between those of device memory, with the
// same tag, overtake none of them.
func (r *Rank) hostBetween() error {
	const messages, length = 3, 700
	g, err := r.split()
	if err != nil {
		return err
	}
	above, below := neighbours(g)
	var inDevice []ringStep
	var others []*exchange
	for i := range messages {
		m, err := r.beginStep(g, 5, 2*i, length)
		if err != nil {
			return err
		}
		in, err := recv(g, below, 5, 2*i+1, length)
		if err != nil {
			return err
		}
		out, err := send(g, above, 5, 2*i+1, length)
		if err != nil {
			return err
		}
		inDevice, others = append(inDevice, m), append(others, in, out)
	}
	for i, m := range inDevice {
		if err := r.endStep(m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return errors.Join(finish(others...), g.Close(), r.DeviceTransport.Close())
}
