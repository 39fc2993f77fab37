package commtest

import (
	"errors"
	"fmt"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

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
