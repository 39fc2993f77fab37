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

// empty: messages without bytes keep their place among others with their tag.
func empty(b *batch) error {
	above, below := neighbours(b)
	for i, length := range []int64{0, 0, 10, 0, 20, 30, 0, 0, 0, 40, 0} {
		if i%2 == 0 {
			b.send(above, 5, i, length)
		}
		b.recv(below, 5, i, length)
		if i%2 == 1 {
			b.send(above, 5, i, length)
		}
	}
	return b.finish()
}

// itself: messages of a rank to itself, received before they are sent and after.
func itself(b *batch) error {
	for i, length := range slices.Concat(deviceLengths, deviceLengths) {
		if i < len(deviceLengths) {
			b.recv(b.Rank(), i, i, length)
			b.send(b.Rank(), i, i, length)
		} else {
			b.send(b.Rank(), i, i, length)
			b.recv(b.Rank(), i, i, length)
		}
	}
	return b.finish()
}

// closeAndSplit runs a ring in all ranks but the last, again and again, each time
// with a transport of its own.
func (r *Rank) closeAndSplit() error {
	for range 3 {
		t := Value(r.Split(r.Rank()/max(r.Size()-1, 1), 0))
		Must(r.within(t, onDevice(ring(deviceLengths))))
		Must(t.Close())
	}
	return r.DeviceTransport.Close()
}

// lengthsDisagree: a message has an unexpected length, or more bytes than its room. The receiver's
// error names the length sent, and ends the transport. The sender may get an error, too.
func (r *Rank) lengthsDisagree() error {
	for i, pair := range [][2]int64{{1000, 2000}, {2000, 1000}, {0, 8}, {8, 0}, {2000, 1000}, {8, 0}} {
		t := Value(r.Split(0, r.Rank()))
		upTo := i >= 4
		err := r.within(t, func(part *Rank) error { return part.disagree(pair[0], pair[1], upTo) })
		if err != nil {
			return fmt.Errorf("%d bytes sent, %d expected (up to: %v): %w", pair[0], pair[1], upTo, err)
		}
		Must(t.Close())
	}
	return r.DeviceTransport.Close()
}

// disagree sends one length from the first rank to the last, which expects
// another. The memory received into has room for both.
func (r *Rank) disagree(sent, expected int64, upTo bool) error {
	defer r.DeviceTransport.Abort()
	last := r.Size() - 1
	m := Value(r.Memory(2 * max(sent, expected)))
	var out comm.Handle
	if r.Rank() == 0 {
		out = Value(r.DeviceTransport.Send(last, 3, m.Span(0, sent), nil))
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
	m := Value(r.Memory(2 << 20))
	in := Value(r.DeviceTransport.Recv(below, 1, m.Span(0, 1<<20), false, nil))
	out := Value(r.DeviceTransport.Send(above, 2, m.Span(1<<20, 1<<20), nil))
	var err error
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
	Must(r.Compute.Sync())
	if took := time.Since(start); took > 5*time.Second {
		return fmt.Errorf("the abort took %v", took)
	}
	return nil
}
