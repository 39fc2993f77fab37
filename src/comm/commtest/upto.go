package commtest

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// upToTooLong: a message that is longer than the room for it is an error that
// names the room.
func upToTooLong(t comm.Transport) error {
	g := comm.New(t, quick())
	for tag, pair := range [][2]int64{{9, 8}, {1, 0}, {5000, 100}, {1 << 20, 1<<20 - 1}} {
		if err := mismatchOnce(g, tag, pair[0], pair[1], "up to ", g.RecvUpTo); err != nil {
			return err
		}
	}
	return nil
}

// upToInPieces: room for less than a piece is received into, room for one panics.
func upToInPieces(t comm.Transport) (err error) {
	o := quick()
	o.Piece = 1000
	b := onGroup(comm.New(t, o))
	above, below := neighbours(b)
	b.send(above, 1, 0, 700)
	b.recvUpTo(below, 1, 0, 700, 999)
	if err := b.finish(); err != nil {
		return err
	}
	defer func() {
		if fault := recover(); fault != "comm: RecvUpTo of more than one piece" {
			err = fmt.Errorf("room for a piece: %v", fault)
		}
	}()
	b.recvUpTo(below, 1, 0, 700, 1000)
	return errors.New("room for a piece is taken")
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
