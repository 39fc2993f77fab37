package commtest

import (
	"errors"
	"fmt"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// upTo: messages of many lengths come into memory that has room for more, in the
// order they were sent, among exact ones with their tag; their receives are begun
// before they are sent and after.
func upTo(t comm.Transport) error {
	const room = 100_000
	g := comm.New(t, quick())
	above, below := neighbours(g)
	lengths := []int64{0, 1, room, 4095, 0, 4097, 65537, room - 1, 8}
	for _, early := range []bool{false, true} {
		var in, out []*exchange
		receive := func() error {
			for i, length := range lengths {
				begin := func() (*exchange, error) { return recvUpTo(g, below, 5, i, length, room) }
				if i%4 == 3 {
					begin = func() (*exchange, error) { return recv(g, below, 5, i, length) }
				}
				e, err := begin()
				if err != nil {
					return err
				}
				in = append(in, e)
			}
			return nil
		}
		if early {
			if err := errors.Join(receive(), g.Barrier()); err != nil {
				return err
			}
		}
		for i, length := range lengths {
			e, err := send(g, above, 5, i, length)
			if err != nil {
				return err
			}
			out = append(out, e)
		}
		if !early {
			if err := errors.Join(g.Barrier(), receive()); err != nil {
				return err
			}
		}
		if err := finish(append(in, out...)...); err != nil {
			return err
		}
	}
	return nil
}

// upToTooLong: a message that is longer than the room for it is an error that
// names the room.
func upToTooLong(t comm.Transport) error {
	g := comm.New(t, quick())
	if g.Size() == 1 { // Open MPI 4.1 does not report it: see mismatchOnce
		return nil
	}
	above, below := neighbours(g)
	for tag, lengths := range [][2]int64{{9, 8}, {1, 0}, {5000, 100}, {1 << 20, 1<<20 - 1}} {
		memory, err := g.Alloc(lengths[0])
		if err != nil {
			return err
		}
		in, err := g.RecvUpTo(below, tag, memory.Span(0, lengths[1]), nil)
		if err != nil {
			return err
		}
		if _, err := send(g, above, tag, 0, lengths[0]); err != nil {
			return err
		}
		received, err := in.Received()
		want := fmt.Sprintf("recv up to %d bytes from rank %d (host ", lengths[1], g.Peer(below).World)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			return fmt.Errorf("%d bytes received, error %q does not begin with %q", received, err, want)
		}
	}
	return nil
}

// upToInPieces: room for less than a piece is received into, room for one panics.
func upToInPieces(t comm.Transport) (err error) {
	o := quick()
	o.Piece = 1000
	g := comm.New(t, o)
	above, below := neighbours(g)
	out, err := send(g, above, 1, 0, 700)
	if err != nil {
		return err
	}
	in, err := recvUpTo(g, below, 1, 0, 700, 999)
	if err != nil {
		return err
	}
	if err := finish(in, out); err != nil {
		return err
	}
	defer func() {
		if fault := recover(); fault != "comm: RecvUpTo of more than one piece" {
			err = fmt.Errorf("room for a piece: %v", fault)
		}
	}()
	_, err = recvUpTo(g, below, 1, 0, 700, 1000)
	return errors.Join(err, errors.New("room for a piece is taken"))
}

// SwapUpTo sends a message to a peer, and receives one of the same length from it
// into memory that has room for more.
func SwapUpTo(g *comm.Group, peer int, out, in tensor.Mem) error {
	recv, err := g.RecvUpTo(peer, 1, in, nil)
	if err != nil {
		return err
	}
	send, err := g.Send(peer, 1, out, nil)
	if err != nil {
		return err
	}
	received, err := recv.Received()
	if err == nil {
		err = send.Wait()
	}
	if err == nil && received != out.Bytes {
		err = fmt.Errorf("received %d bytes, want %d", received, out.Bytes)
	}
	return err
}
