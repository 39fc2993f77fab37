package commtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// lengths: none, odd, around the eager limits of Open MPI's transports
// (4 KiB shared memory, 64 KiB TCP), large.
var lengths = []int64{0, 1, 3, 8, 255, 1000, 4095, 4096, 4097, 65535, 65537, 1<<20 + 1, 5<<20 - 3}

// pieces: messages have lengths on both sides of multiples of the piece length. One length is a
// multiple of the page size too, so that its empty last piece has no address in its memory's pages.
func pieces(t comm.Transport) error {
	o := quick()
	o.Piece = 1000
	return ring([]int64{0, 1, 999, 1000, 1001, 1999, 2000, 2001, 54321, 1000 << 10})(onGroup(comm.New(t, o)))
}

// over2GiB: one message whose length does not fit MPI's int, from rank 0 to
// the last rank.
func over2GiB(t comm.Transport) error {
	const length = 2<<30 + 5
	g := comm.New(t, comm.Options{Patience: 2 * time.Minute})
	last := g.Size() - 1
	if last == 0 {
		return nil
	}
	b := onGroup(g)
	switch g.Rank() {
	case 0:
		b.send(last, 0, 0, length)
	case last:
		b.recv(0, 0, 0, length)
	}
	return b.finish()
}

// oldRequests: a request whose message is done stays done, whatever the group
// has under way since; one that stands for no message is done.
func oldRequests(t comm.Transport) error {
	g := comm.New(t, quick())
	above, below := neighbours(g)
	var none comm.Request
	if done, err := none.Test(); !done || err != nil || none.Wait() != nil {
		return fmt.Errorf("no message: %v, %v", done, err)
	}
	var old []*exchange
	for i := range 4 {
		in := Value(recv(g, below, i, i, 5000))
		for _, e := range old { // the receive cannot be done: its message is not sent yet
			if done, err := e.request.Test(); !done || err != nil {
				return fmt.Errorf("message %d of the past: %v, %v", i, done, err)
			}
			Must(e.request.Wait())
		}
		Must(g.Barrier())
		out := Value(send(g, above, i, i, 5000))
		Must(finish(in, out))
		old = append(old, in, out)
	}
	return nil
}

// sendBytes: ranks send to each other before they receive, and reuse the data.
func sendBytes(t comm.Transport) error {
	g := comm.New(t, quick())
	above, below := neighbours(g)
	lengths := []int64{0, 1, 247, 248, 249, 256, 4096, 65536, 1 << 20, 3<<20 + 1, 0}
	for i, length := range lengths {
		data := pattern(g.Rank(), above, i, length)
		Must(g.SendBytes(above, comm.TagBalance, data))
		clear(data)
	}
	for i, length := range lengths {
		got := Value(g.RecvBytes(below, comm.TagBalance))
		if string(got) != string(pattern(below, g.Rank(), i, length)) {
			return fmt.Errorf("%d bytes: received others than were sent", length)
		}
	}
	return g.Barrier()
}

// wrongLength: a message longer or shorter than its receive is an error
// that names both; the next message with the tag is not disturbed.
func wrongLength(t comm.Transport) error {
	return mismatch(comm.New(t, quick()), [][2]int64{
		{8, 9}, {9, 8}, {0, 4}, {4, 0}, {100, 5000}, {5000, 100}, {1 << 20, 1<<20 - 1}, {1<<20 - 1, 1 << 20},
	})
}

// wrongLengthInPieces: lengths that differ in the last piece only, and lengths
// that share all full pieces.
func wrongLengthInPieces(t comm.Transport) error {
	o := quick()
	o.Piece = 1000
	g := comm.New(t, o)
	Must(mismatch(g, [][2]int64{{2500, 2501}, {2501, 2500}, {2000, 2001}}))
	// The pieces that are left over have tags that are not used again.
	for i, pair := range [][2]int64{{3000, 2000}, {2001, 2000}} {
		Must(mismatchOnce(g, 100+i, pair[0], pair[1], "", g.Recv))
	}
	return nil
}

// mismatch makes each pair a mismatch, and then checks that the tag is as good
// as before.
func mismatch(g *comm.Group, pairs [][2]int64) error {
	above, below := neighbours(g)
	b := onGroup(g)
	for tag, pair := range pairs {
		Must(mismatchOnce(g, tag, pair[0], pair[1], "", g.Recv))
		b.recv(below, tag, 1, 10)
		b.send(above, tag, 1, 10)
		if err := b.finish(); err != nil {
			return fmt.Errorf("after a mismatch of %v: %w", pair, err)
		}
	}
	return nil
}

// mismatchOnce sends one length up the ring where another is expected. The
// memory received into has room for both: Open MPI 4.1 reports a long message
// only after it has written all of it, and for one to itself not at all.
func mismatchOnce(g *comm.Group, tag int, sent, expected int64, quantity string, receive receive) error {
	if g.Size() == 1 {
		return nil
	}
	above, below := neighbours(g)
	room := Value(g.Alloc(max(sent, expected)))
	in := Value(receive(below, tag, room.Span(0, expected), nil))
	Value(send(g, above, tag, 0, sent))
	err := in.Wait()
	if err == nil {
		return fmt.Errorf("%d bytes received as %d without an error", sent, expected)
	}
	if errors.Is(err, comm.ErrGone) || errors.Is(err, comm.ErrNoAnswer) {
		return err
	}
	want := fmt.Sprintf("recv %s%d bytes from rank %d (host ", quantity, expected, g.Peer(below).World)
	if !strings.HasPrefix(err.Error(), want) {
		return fmt.Errorf("error %q does not begin with %q", err, want)
	}
	return nil
}

// upToTooLong: a message that is longer than the room for it is an error that
// names the room.
func upToTooLong(t comm.Transport) error {
	g := comm.New(t, quick())
	for tag, pair := range [][2]int64{{9, 8}, {1, 0}, {5000, 100}, {1 << 20, 1<<20 - 1}} {
		Must(mismatchOnce(g, tag, pair[0], pair[1], "up to ", g.RecvUpTo))
	}
	return nil
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
