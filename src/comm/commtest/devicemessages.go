package commtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dynmo/src/comm"
)

// deviceLengths are lengths of messages: none, odd, small, and larger than the
// buffers of sockets and NCCL.
var deviceLengths = []int64{0, 1, 3, 8, 255, 4096, 65537, 1<<20 + 1, 5<<20 - 3}

// ring sends messages of all lengths up the ring, one after the other.
func (r *Rank) ring() error {
	above, below := r.Neighbours()
	for i, length := range deviceLengths {
		both, err := r.exchange(above, below, 7, i, length, false)
		if err != nil {
			return err
		}
		if err := r.Finish(both...); err != nil {
			return fmt.Errorf("%d bytes: %w", length, err)
		}
	}
	return r.DeviceTransport.Close()
}

// finishAndClose finishes all messages of a case, and closes the transport.
func (r *Rank) finishAndClose(all []*Message) error {
	if err := r.Finish(all...); err != nil {
		return err
	}
	return r.DeviceTransport.Close()
}

// allPairs sends from every rank to every rank at once, itself too, before any
// receives.
func (r *Rank) allPairs() error {
	var all []*Message
	for _, begin := range []func(peer, tag, index int, length int64) (*Message, error){r.Send, r.Recv} {
		for i, length := range deviceLengths {
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
		for i, length := range deviceLengths {
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
	return r.DeviceTransport.Close()
}

// upTo: messages of all lengths are received into memory that has room for more,
// among exact ones with their tag, before they are sent and after. The memory behind
// a message stays as it is.
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
			for i, length := range deviceLengths {
				m, err := r.Send(to, 5, i, length)
				if err != nil {
					return err
				}
				all = append(all, m)
			}
			return nil
		}
		recv := func() error {
			for i, length := range deviceLengths {
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
	return r.DeviceTransport.Close()
}

// closeAndSplit runs a ring in all ranks but the last, again and again, each time
// with a transport of its own.
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
	return r.DeviceTransport.Close()
}

// lengthsDisagree: a message of another length than was expected, or of more bytes
// than there is room for, is an error of the receiver that names the length sent,
// and ends the transport. The sender may get an error, too.
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
	return r.DeviceTransport.Close()
}

// disagree sends one length from the first rank to the last, which expects
// another. The memory received into has room for both.
func (r *Rank) disagree(sent, expected int64, upTo bool) error {
	defer r.DeviceTransport.Abort()
	last := r.Size() - 1
	m, err := r.Memory(2 * max(sent, expected))
	if err != nil {
		return err
	}
	var out comm.Handle
	if r.Rank() == 0 {
		if out, err = r.DeviceTransport.Send(last, 3, m.Span(0, sent), nil); err != nil {
			return err
		}
	}
	if r.Rank() == last {
		in, err := r.DeviceTransport.Recv(0, 3, m.Span(m.Bytes/2, expected), upTo, nil)
		if err == nil {
			err = Wait(in)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(" %d bytes", sent)) {
			return fmt.Errorf("want an error that names the length sent, got %v", err)
		}
		if _, again := r.DeviceTransport.Send(0, 4, m, nil); !errors.Is(again, err) {
			return fmt.Errorf("the transport goes on after %v", err)
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

// abort: messages under way when a transport is aborted end with an error at once,
// and so do later ones; no rank has begun the other half.
func (r *Rank) abort() error {
	above, below := r.Neighbours()
	m, err := r.Memory(2 << 20)
	if err != nil {
		return err
	}
	in, err := r.DeviceTransport.Recv(below, 1, m.Span(0, 1<<20), false, nil)
	if err != nil {
		return err
	}
	out, err := r.DeviceTransport.Send(above, 2, m.Span(1<<20, 1<<20), nil)
	if err != nil {
		return err
	}
	for start := time.Now(); err == nil && time.Since(start) < 20*time.Millisecond; {
		_, _, err = in.Test(0) // an error once the other rank has aborted
	}
	start := time.Now()
	r.DeviceTransport.Abort()
	for _, h := range []comm.Handle{in, out} {
		if done, _, err := h.Test(0); !done || err == nil {
			return fmt.Errorf("after the abort a message under way: %v, %v", done, err)
		}
	}
	if _, err := r.DeviceTransport.Send(above, 1, m, nil); err == nil {
		return errors.New("a send is begun after the abort")
	}
	if _, err := r.DeviceTransport.Recv(below, 2, m, false, nil); err == nil {
		return errors.New("a receive is begun after the abort")
	}
	if err := r.DeviceTransport.Close(); err == nil {
		return errors.New("an aborted transport closes without an error")
	}
	r.DeviceTransport.Abort()
	if err := r.Compute.Sync(); err != nil {
		return err
	}
	if took := time.Since(start); took > 5*time.Second {
		return fmt.Errorf("the abort took %v", took)
	}
	return nil
}
