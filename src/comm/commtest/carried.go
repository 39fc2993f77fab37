package commtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// carried are lengths: none, odd, small, and larger than what sockets and NCCL
// hold back.
var carried = []int64{0, 1, 3, 8, 255, 4096, 65537, 1<<20 + 1, 5<<20 - 3}

// ring sends messages of all lengths up the ring, one after the other.
func (r *Rank) ring() error {
	above, below := r.Neighbours()
	for i, length := range carried {
		both, err := r.exchange(above, below, 7, i, length, false)
		if err != nil {
			return err
		}
		if err := r.Finish(both...); err != nil {
			return fmt.Errorf("%d bytes: %w", length, err)
		}
	}
	return r.Carrier.Close()
}

// finishAndClose finishes all messages of a case, and closes the carrier.
func (r *Rank) finishAndClose(all []*Message) error {
	if err := r.Finish(all...); err != nil {
		return err
	}
	return r.Carrier.Close()
}

// allPairs sends from every rank to every rank at once, itself too, before any
// receives.
func (r *Rank) allPairs() error {
	var all []*Message
	for _, begin := range []func(peer, tag, index int, length int64) (*Message, error){r.Send, r.Recv} {
		for i, length := range carried {
			for peer := range r.Size() {
				m, err := begin(peer, i, i, length)
				if err != nil {
					return err
				}
				all = append(all, m)
			}
		}
	}
	return r.finishAndClose(all)
}

// tagsOutOfOrder: many messages under way, received from the last tag to the first.
func (r *Rank) tagsOutOfOrder() error {
	const messages = 40
	above, below := r.Neighbours()
	length := func(i int) int64 { return int64(i*i*7 + 1) }
	var all []*Message
	for i := range messages {
		out, err := r.Send(above, 100*i, i, length(i))
		if err != nil {
			return err
		}
		all = append(all, out)
	}
	for i := messages - 1; i >= 0; i-- {
		in, err := r.Recv(below, 100*i, i, length(i))
		if err != nil {
			return err
		}
		all = append(all, in)
	}
	return r.finishAndClose(all)
}

// firstInFirstOut: messages with one tag arrive in the order they were sent,
// whether the receive is begun before or after.
func (r *Rank) firstInFirstOut() error {
	const messages = 30
	above, below := r.Neighbours()
	var all []*Message
	for i := range messages {
		both, err := r.exchange(above, below, 5, i, 5000, i%7 > 3)
		if err != nil {
			return err
		}
		all = append(all, both...)
	}
	return r.finishAndClose(all)
}

// empty: messages without bytes keep their place among others with their tag.
func (r *Rank) empty() error {
	above, below := r.Neighbours()
	var all []*Message
	for i, length := range []int64{0, 0, 10, 0, 20, 30, 0, 0, 0, 40, 0} {
		both, err := r.exchange(above, below, 5, i, length, i%2 == 0)
		if err != nil {
			return err
		}
		all = append(all, both...)
	}
	return r.finishAndClose(all)
}

// itself: messages of a rank to itself, received before they are sent and after.
func (r *Rank) itself() error {
	for _, sendFirst := range []bool{false, true} {
		var all []*Message
		for i, length := range carried {
			both, err := r.exchange(r.Rank(), r.Rank(), i, i, length, sendFirst)
			if err != nil {
				return err
			}
			all = append(all, both...)
		}
		if err := r.Finish(all...); err != nil {
			return err
		}
	}
	return r.Carrier.Close()
}

// upTo: messages of all lengths come into memory that has room for more, among
// exact ones with their tag, received before they are sent and after; what is
// behind a message stays.
func (r *Rank) upTo() error {
	above, below := r.Neighbours()
	return r.roomy(above, below)
}

// upToItself: the same for messages of a rank to itself.
func (r *Rank) upToItself() error { return r.roomy(r.Rank(), r.Rank()) }

func (r *Rank) roomy(to, from int) error {
	const room = 5 << 20
	for _, sendFirst := range []bool{false, true} {
		var all []*Message
		send := func() error {
			for i, length := range carried {
				m, err := r.Send(to, 5, i, length)
				if err != nil {
					return err
				}
				all = append(all, m)
			}
			return nil
		}
		recv := func() error {
			for i, length := range carried {
				exact := i%4 == 3
				most := int64(room)
				if exact {
					most = length
				}
				m, err := r.recv(from, 5, i, length, most, !exact)
				if err != nil {
					return err
				}
				all = append(all, m)
			}
			return nil
		}
		steps := []func() error{recv, send}
		if sendFirst {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		if err := r.Finish(all...); err != nil {
			return err
		}
	}
	return r.Carrier.Close()
}

// split returns a group of all ranks, the last one first, whose messages of device
// memory travel in pieces of 1000 bytes.
func (r *Rank) split() (*comm.Group, error) {
	o := quick()
	o.Piece, o.Carry = 1000, r.carry
	return comm.New(r.Transport, o).Split(0, -r.Rank())
}

// grouped is a message of device memory from below in the ring of a group, and one
// up the ring.
type grouped struct {
	mem        tensor.Mem // what is received
	want       []byte
	recv, send comm.Request
}

// through begins to send a pattern up the ring of g, and to receive one.
func (r *Rank) through(g *comm.Group, tag, index int, length int64) (m grouped, err error) {
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

// end waits for both messages and looks at what came.
func (r *Rank) end(m grouped) error {
	if err := errors.Join(m.recv.Wait(), m.send.Wait()); err != nil {
		return err
	}
	return r.compare(m.mem, m.want)
}

// group is what a Group does with a carrier: messages in pieces, waits, its end.
func (r *Rank) group() error {
	g, err := r.split()
	if err != nil {
		return err
	}
	for i, length := range []int64{0, 1, 999, 1000, 1001, 4000, 54321} {
		m, err := r.through(g, i, i, length)
		if err == nil {
			err = r.end(m)
		}
		if err != nil {
			return fmt.Errorf("%d bytes: %w", length, err)
		}
	}
	if err := r.groupUpTo(g); err != nil {
		return fmt.Errorf("up to: %w", err)
	}
	return errors.Join(g.Close(), r.Carrier.Close())
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
	var carried []grouped
	var others []*exchange
	for i := range messages {
		m, err := r.through(g, 5, 2*i, length)
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
		carried, others = append(carried, m), append(others, in, out)
	}
	for i, m := range carried {
		if err := r.end(m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return errors.Join(finish(others...), g.Close(), r.Carrier.Close())
}

// closeAndSplit runs a ring in all ranks but the last, again and again, each time
// with a carrier of its own.
func (r *Rank) closeAndSplit() error {
	for range 3 {
		t, err := r.Split(r.Rank()/max(r.Size()-1, 1), 0)
		if err != nil {
			return err
		}
		if err := r.within(t, (*Rank).ring); err != nil {
			return err
		}
		if err := t.Close(); err != nil {
			return err
		}
	}
	return r.Carrier.Close()
}

// lengthsDisagree: a message of another length than was expected, or of more bytes
// than there is room for, is an error of
// the receiver that names the length sent, and nothing is carried after it. The
// sender may be told too.
func (r *Rank) lengthsDisagree() error {
	for i, pair := range [][2]int64{{1000, 2000}, {2000, 1000}, {0, 8}, {8, 0}, {2000, 1000}, {8, 0}} {
		t, err := r.Split(0, r.Rank())
		if err != nil {
			return err
		}
		upTo := i >= 4
		err = r.within(t, func(part *Rank) error { return part.disagree(pair[0], pair[1], upTo) })
		if err != nil {
			return fmt.Errorf("%d bytes sent, %d expected (up to: %v): %w", pair[0], pair[1], upTo, err)
		}
		if err := t.Close(); err != nil {
			return err
		}
	}
	return r.Carrier.Close()
}

// disagree sends one length from the first rank to the last, which expects
// another. The memory received into has room for both.
func (r *Rank) disagree(sent, expected int64, upTo bool) error {
	defer r.Carrier.Abort()
	last := r.Size() - 1
	m, err := r.Memory(2 * max(sent, expected))
	if err != nil {
		return err
	}
	var out comm.Handle
	if r.Rank() == 0 {
		if out, err = r.Carrier.Send(last, 3, m.Span(0, sent), nil); err != nil {
			return err
		}
	}
	if r.Rank() == last {
		in, err := r.Carrier.Recv(0, 3, m.Span(m.Bytes/2, expected), upTo, nil)
		if err == nil {
			err = Wait(in)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(" %d bytes", sent)) {
			return fmt.Errorf("want an error that names the length sent, got %v", err)
		}
		if _, again := r.Carrier.Send(0, 4, m, nil); !errors.Is(again, err) {
			return fmt.Errorf("the carrier goes on after %v", err)
		}
		return nil
	}
	if out != nil {
		if err := Wait(out); errors.Is(err, errLate) {
			return err
		}
	}
	return nil
}

// abort: what is under way when a carrier is aborted ends with an error at once,
// and so does what is begun later; nobody has begun the other half.
func (r *Rank) abort() error {
	above, below := r.Neighbours()
	m, err := r.Memory(2 << 20)
	if err != nil {
		return err
	}
	in, err := r.Carrier.Recv(below, 1, m.Span(0, 1<<20), false, nil)
	if err != nil {
		return err
	}
	out, err := r.Carrier.Send(above, 2, m.Span(1<<20, 1<<20), nil)
	if err != nil {
		return err
	}
	for start := time.Now(); err == nil && time.Since(start) < 20*time.Millisecond; {
		_, _, err = in.Test(0) // an error once the other rank has aborted
	}
	start := time.Now()
	r.Carrier.Abort()
	for _, h := range []comm.Handle{in, out} {
		if done, _, err := h.Test(0); !done || err == nil {
			return fmt.Errorf("after the abort a message under way: %v, %v", done, err)
		}
	}
	if _, err := r.Carrier.Send(above, 1, m, nil); err == nil {
		return errors.New("a send is begun after the abort")
	}
	if _, err := r.Carrier.Recv(below, 2, m, false, nil); err == nil {
		return errors.New("a receive is begun after the abort")
	}
	if err := r.Carrier.Close(); err == nil {
		return errors.New("an aborted carrier closes without an error")
	}
	r.Carrier.Abort()
	if err := r.Compute.Sync(); err != nil {
		return err
	}
	if took := time.Since(start); took > 5*time.Second {
		return fmt.Errorf("the abort took %v", took)
	}
	return nil
}
