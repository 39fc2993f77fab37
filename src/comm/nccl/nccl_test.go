//go:build cuda && cgo

package nccl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/tensor"
)

func init() {
	roles["version"] = func() error {
		_, err := Version()
		return err
	}
}

// The library is opened once per process, so others open the ones that will not do.
func TestVersion(t *testing.T) {
	if version, err := Version(); err != nil || !strings.HasPrefix(version, "2.") {
		t.Errorf("%q, %v", version, err)
	}
	const wanted = "2.14.0 or later is needed"
	for _, test := range []struct{ name, setting, want string }{
		{"too old", "DYNMO_EMULATE_NCCL_VERSION=21205", "nccl: the NCCL library is version 2.12.5; " + wanted},
		{"of the old code", "DYNMO_EMULATE_NCCL_VERSION=2804", "nccl: the NCCL library is version 2.8.4; " + wanted},
		{"missing", "DYNMO_NCCL_LIBRARY=libnowhere.so", "nccl: no NCCL library: libnowhere.so: cannot open"},
		{"another", "DYNMO_NCCL_LIBRARY=libc.so.6", "undefined symbol: ncclGetVersion"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if strings.Contains(test.setting, "EMULATE") && !cudatest.Emulated(cudatest.New(t)) {
				t.Skip("only the emulated library pretends")
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"=version", test.setting)
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// One rank: init, split, send to itself, abort.
func TestTry(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	const bytes = 1 << 20
	src, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(src)
	dst, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(dst)
	want := pattern(0, 0, 0, bytes)
	s.Copy(src, tensor.From(want))
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := Try(d, dst, src); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, bytes)
	s.Copy(tensor.From(got), dst)
	if err := s.Sync(); err != nil || string(got) != string(want) {
		t.Errorf("other bytes came than were sent: %v", err)
	}
}

// lengths: none, odd, small, and larger than what sockets and NCCL hold back.
var lengths = []int64{0, 1, 3, 8, 255, 4096, 65537, 1<<20 + 1, 5<<20 - 3}

func TestRing(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprintf("n=%d", ranks), func(t *testing.T) { world(t, ranks, ring) })
	}
}

// ring sends messages of all lengths up the ring, one after the other.
func ring(r *rank) error {
	above, below := r.neighbours()
	for i, length := range lengths {
		in, err := r.recv(below, 7, i, length)
		if err != nil {
			return err
		}
		out, err := r.send(above, 7, i, length)
		if err != nil {
			return err
		}
		if err := r.finish(in, out); err != nil {
			return fmt.Errorf("%d bytes: %w", length, err)
		}
	}
	return r.c.Close()
}

func TestAllPairs(t *testing.T) { world(t, 4, allPairs) }

// allPairs sends from every rank to every rank at once, itself too, before any
// receives.
func allPairs(r *rank) error {
	var all []*message
	for i, length := range lengths {
		for peer := range r.Size() {
			out, err := r.send(peer, i, i, length)
			if err != nil {
				return err
			}
			all = append(all, out)
		}
	}
	for i, length := range lengths {
		for peer := range r.Size() {
			in, err := r.recv(peer, i, i, length)
			if err != nil {
				return err
			}
			all = append(all, in)
		}
	}
	if err := r.finish(all...); err != nil {
		return err
	}
	return r.c.Close()
}

// Many messages under way, received from the last tag to the first.
func TestTagsOutOfOrder(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		world(t, ranks, func(r *rank) error {
			const messages = 40
			above, below := r.neighbours()
			var all []*message
			for i := range messages {
				out, err := r.send(above, 100*i, i, int64(i*i*7+1))
				if err != nil {
					return err
				}
				all = append(all, out)
			}
			for i := messages - 1; i >= 0; i-- {
				in, err := r.recv(below, 100*i, i, int64(i*i*7+1))
				if err != nil {
					return err
				}
				all = append(all, in)
			}
			if err := r.finish(all...); err != nil {
				return err
			}
			return r.c.Close()
		})
	}
}

// Messages with one tag arrive in the order they were sent, whether the receive
// is begun before or after.
func TestFirstInFirstOut(t *testing.T) {
	world(t, 2, func(r *rank) error {
		const messages = 30
		above, below := r.neighbours()
		var all []*message
		for i := range messages {
			first, second := r.recv, r.send
			peers := []int{below, above}
			if i%7 > 3 {
				first, second = second, first
				peers = []int{above, below}
			}
			a, err := first(peers[0], 5, i, 5000)
			if err != nil {
				return err
			}
			b, err := second(peers[1], 5, i, 5000)
			if err != nil {
				return err
			}
			all = append(all, a, b)
		}
		if err := r.finish(all...); err != nil {
			return err
		}
		return r.c.Close()
	})
}

// One buffer on each side serves all messages, the host waits for no work of the
// GPU, and one event is recorded again and again: the streams keep the order.
func TestStreamOrder(t *testing.T) {
	const messages, length, delay = 12, 300_000, 32 << 20
	world(t, 2, func(r *rank) error {
		source, err := r.alloc(messages * length)
		if err != nil {
			return err
		}
		buffer, err := r.alloc(length)
		if err != nil {
			return err
		}
		slow, err := r.alloc(2 * delay)
		if err != nil {
			return err
		}
		for i := range messages {
			r.compute.Copy(source.Span(int64(i*length), length), tensor.From(pattern(0, 1, i, length)))
		}
		var now device.Event
		for i := range messages {
			part := source.Span(int64(i*length), length)
			var h comm.Handle
			r.compute.Copy(slow.Span(0, delay), slow.Span(delay, delay)) // lanes are ahead of what needs no order
			if r.Rank() == 0 {
				r.compute.Copy(buffer, part)
				now = r.compute.Record(now)
				h, err = r.c.Send(1, i, buffer, now)
			} else {
				r.compute.Zero(part)
				now = r.compute.Record(now)
				h, err = r.c.Recv(0, i, buffer, now)
			}
			if err == nil {
				err = wait(h)
			}
			if err != nil {
				return err
			}
			if r.Rank() == 1 {
				r.compute.Copy(slow.Span(0, delay), slow.Span(delay, delay))
				r.compute.Copy(part, buffer)
			}
		}
		got := make([]byte, messages*length)
		r.compute.Copy(tensor.From(got), source)
		if err := r.compute.Sync(); err != nil {
			return err
		}
		for i := range messages {
			if string(got[i*length:(i+1)*length]) != string(pattern(0, 1, i, length)) {
				return fmt.Errorf("message %d has other bytes than were sent", i)
			}
		}
		return r.c.Close()
	})
}

// A message of another length than was expected is an error of both sides that
// names both lengths, and of the one side of a rank to itself.
func TestLengthsDisagree(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		world(t, ranks, func(r *rank) error {
			var err error
			var h comm.Handle
			m, err := r.alloc(2000)
			if err != nil {
				return err
			}
			if r.Rank() == 0 {
				h, err = r.c.Send(r.Size()-1, 3, m.Span(0, 1000), nil)
			}
			if err == nil && r.Rank() == r.Size()-1 {
				h, err = r.c.Recv(0, 3, m, nil)
			}
			if err == nil {
				err = wait(h)
			}
			if err == nil || !strings.Contains(err.Error(), "tag 3 has 1000 bytes, but 2000 are expected") {
				return fmt.Errorf("want an error that names both lengths, got %v", err)
			}
			if _, again := r.c.Send(0, 4, m, nil); !errors.Is(again, err) {
				return fmt.Errorf("the carrier goes on after %v", err)
			}
			return nil
		})
	}
}

// An abort ends at once what waits for another rank: a message that nobody sends,
// and one on the stream whose other half was not begun.
func TestAbort(t *testing.T) {
	aborted := make(chan struct{})
	world(t, 2, func(r *rank) error {
		m, err := r.alloc(1 << 20)
		if err != nil {
			return err
		}
		never, err := r.c.Recv(1-r.Rank(), 1, m, nil)
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			defer close(aborted)
			out, err := r.c.Send(1, 2, m, nil)
			if err != nil {
				return err
			}
			for !out.(*transfer).enqueued && err == nil {
				_, _, err = out.Test(0)
			}
			if err != nil {
				return err
			}
		} else {
			if _, err := r.c.Recv(0, 2, m, nil); err != nil {
				return err
			}
			for !r.c.receivers[0].comm.begun() && err == nil {
				_, _, err = never.Test(0)
			}
			if err != nil {
				return err
			}
			<-aborted // this rank answers no more
		}
		start := time.Now()
		r.c.Abort()
		if done, _, err := never.Test(0); !done || !errors.Is(err, errAborted) {
			return fmt.Errorf("after the abort: %v, %v", done, err)
		}
		for _, e := range r.c.ends {
			if err := e.way().stream.Sync(); err != nil {
				return err
			}
		}
		if took := time.Since(start); took > time.Second {
			return fmt.Errorf("the abort took %v", took)
		}
		return nil
	})
}

// A fault of NCCL's while a message is under way ends both sides with an error.
func TestFault(t *testing.T) {
	if !cudatest.Emulated(cudatest.New(t)) {
		t.Skip("only the emulated library can be told to fail")
	}
	t.Setenv("DYNMO_EMULATE_NCCL_FAULT", "7777")
	world(t, 2, func(r *rank) error {
		above, below := r.neighbours()
		in, err := r.recv(below, 0, 0, 7777)
		if err != nil {
			return err
		}
		out, err := r.send(above, 0, 0, 7777)
		if err == nil {
			err = wait(out.handle, in.handle)
		}
		for err == nil { // the receive is done once it is enqueued
			_, _, err = (&transfer{lane: r.c.ends[0].way()}).Test(0)
		}
		if !strings.Contains(err.Error(), "network error") || !strings.Contains(err.Error(), "to rank") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// What a group does with a carrier: messages in pieces, waits, its end.
func TestGroup(t *testing.T) {
	const length = 4000
	world(t, 3, func(r *rank) error {
		o := comm.Options{Piece: 1000, Carry: func(tr comm.Transport) (comm.Carrier, error) {
			return New(tr, r.d, r.compute)
		}}
		g, err := comm.New(r.Transport, o).Split(0, -r.Rank())
		if err != nil {
			return err
		}
		above, below := (g.Rank()+1)%3, (g.Rank()+2)%3
		for i := range 3 {
			in, err := r.alloc(length)
			if err != nil {
				return err
			}
			out, err := r.alloc(length)
			if err != nil {
				return err
			}
			r.compute.Copy(out, tensor.From(pattern(g.Rank(), above, i, length)))
			recv, err := g.Recv(below, i, in, nil)
			if err != nil {
				return err
			}
			send, err := g.Send(above, i, out, r.compute.Record(nil))
			if err != nil {
				return err
			}
			if err := errors.Join(recv.Wait(), send.Wait()); err != nil {
				return err
			}
			if err := r.finish(&message{done{}, in, pattern(below, g.Rank(), i, length)}); err != nil {
				return err
			}
		}
		return errors.Join(g.Close(), r.c.Close())
	})
}

// done is a handle that is.
type done struct{}

func (done) Test(time.Duration) (bool, float64, error) { return true, 0, nil }

// Communicators of several ranks are split, shrunk and ended.
func TestCommunicators(t *testing.T) {
	skipWithout(t, 3)
	id, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	err = local.Run(3, func(tr comm.Transport) error {
		return onGPU(tr, func(r *rank) error {
			deadline := time.Now().Add(10 * time.Second)
			whole, err := begin(id, r.Rank(), 3)
			if err == nil {
				err = whole.await(deadline)
			}
			if err != nil {
				return err
			}
			parts, err := subsets(whole, r.Rank(), deadline)
			if err != nil {
				return err
			}
			for _, part := range parts { // {2, 0} and {0, 2}, in these orders
				if err := pass(r, part, deadline); err != nil {
					return err
				}
				if err := part.end(deadline); err != nil {
					return err
				}
			}
			return whole.end(deadline)
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// subset is a communicator and this rank in it.
type subset struct {
	communicator
	rank int
}

// subsets splits ranks 0 and 2 off, in reverse, and shrinks rank 1 away, which
// gets none of them.
func subsets(whole communicator, rank int, deadline time.Time) ([]subset, error) {
	part, err := whole.split(rank%2, -rank)
	if err == nil {
		err = whole.await(deadline)
	}
	if err != nil {
		return nil, err
	}
	if rank == 1 {
		return nil, part.end(deadline)
	}
	rest, err := whole.shrink(1)
	if errors.Is(err, errors.ErrUnsupported) {
		return []subset{{part, 1 - rank/2}}, nil
	}
	if err == nil {
		err = whole.await(deadline)
	}
	return []subset{{part, 1 - rank/2}, {rest, rank / 2}}, err
}

// end ends a communicator. Collective.
func (c communicator) end(deadline time.Time) error {
	if err := c.await(deadline); err != nil {
		return err
	}
	if err := c.finish(); err != nil {
		return err
	}
	if err := c.await(deadline); err != nil {
		return err
	}
	return c.destroy()
}

// pass sends a pattern from rank 0 of two to rank 1.
func pass(r *rank, s subset, deadline time.Time) error {
	const bytes = 100_000
	m, err := r.alloc(bytes)
	if err != nil {
		return err
	}
	want := pattern(0, 1, 0, bytes)
	if err := s.await(deadline); err != nil {
		return err
	}
	if handle := r.compute.(handled).Handle(); s.rank == 0 {
		r.compute.Copy(m, tensor.From(want))
		err = s.send(m, 1, handle)
	} else {
		err = s.recv(m, 0, handle)
	}
	if err == nil {
		err = s.await(deadline)
	}
	if err != nil {
		return err
	}
	return r.finish(&message{done{}, m, want})
}
