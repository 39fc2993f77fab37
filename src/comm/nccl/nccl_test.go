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
	"dynmo/src/comm/commtest"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
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

// pattern returns bytes of which no two blocks that NCCL may take are the same.
func pattern(length int) []byte {
	data := make([]byte, length)
	for i := range data {
		data[i] = byte(i % 251)
	}
	return data
}

// holds is an error if m, as a stream finds it, holds other bytes than wanted.
func holds(s device.Stream, m tensor.Mem, want []byte) error {
	got := make([]byte, len(want))
	s.Copy(tensor.From(got), m)
	if err := s.Sync(); err != nil {
		return err
	}
	if string(got) != string(want) {
		return errors.New("other bytes came than were sent")
	}
	return nil
}

func TestSuite(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		for _, c := range commtest.DeviceCases() {
			t.Run(fmt.Sprintf("n=%d/%s", ranks, c.Name), func(t *testing.T) {
				world(t, ranks, func(r *commtest.Rank, _ *transport) error { return c.Run(r) })
			})
		}
	}
}

// A message of another length than was expected is an error of the sender too,
// and both sides name both lengths.
func TestLengthsDisagree(t *testing.T) {
	world(t, 2, func(r *commtest.Rank, d *transport) error {
		m := commtest.Value(r.Memory(2000))
		var h comm.Handle
		var err error
		if r.Rank() == 0 {
			h, err = d.Send(1, 3, m.Span(0, 1000), nil)
		} else {
			h, err = d.Recv(0, 3, m, false, nil)
		}
		if err == nil {
			err = commtest.Wait(h)
		}
		if err == nil || !strings.Contains(err.Error(), "tag 3 has 1000 bytes, but 2000 are expected") {
			return fmt.Errorf("want an error that names both lengths, got %v", err)
		}
		return nil
	})
}

// An abort ends at once what waits for another rank on the GPU: a message on the
// stream whose other half was not begun.
func TestAbort(t *testing.T) {
	aborted := make(chan struct{})
	world(t, 2, func(r *commtest.Rank, d *transport) error {
		m := commtest.Value(r.Memory(1 << 20))
		never := commtest.Value(d.Recv(1-r.Rank(), 1, m, false, nil))
		if r.Rank() == 0 {
			defer close(aborted)
			out := commtest.Value(d.Send(1, 2, m, nil))
			for !out.(*transfer).enqueued {
				_, _, err := out.Test(0)
				commtest.Must(err)
			}
		} else {
			commtest.Value(d.Recv(0, 2, m, false, nil))
			for !d.byRoute[route{0, 1}].base().comm.begun() {
				_, _, err := never.Test(0)
				commtest.Must(err)
			}
			<-aborted // this rank answers no more
		}
		start := time.Now()
		d.Abort()
		if done, _, err := never.Test(0); !done || !errors.Is(err, errAborted) {
			return fmt.Errorf("after the abort: %v, %v", done, err)
		}
		for _, e := range d.endpoints {
			commtest.Must(e.base().stream.Sync())
		}
		if took := time.Since(start); took > 5*time.Second {
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
	world(t, 2, func(r *commtest.Rank, d *transport) error {
		above, below := r.Neighbours()
		in := commtest.Value(r.Recv(below, 0, 0, 7777))
		out, err := r.Send(above, 0, 0, 7777)
		if err == nil {
			err = r.Finish(out, in)
		}
		for err == nil { // the receive is done once it is enqueued
			_, _, err = (&transfer{channel: d.endpoints[0].base()}).Test(0)
		}
		if !strings.Contains(err.Error(), "network error") || !strings.Contains(err.Error(), "to rank") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// Communicators of several ranks are split, shrunk and ended.
func TestCommunicators(t *testing.T) {
	skipWithout(t, 3)
	id, err := newIdentity()
	expect.OK(t, err)
	err = local.Run(3, func(tr comm.Transport) error {
		return gpus.Run(tr, func(r *commtest.Rank) error {
			deadline := time.Now().Add(10 * time.Second)
			all := commtest.Value(begin(id, r.Rank(), 3))
			commtest.Must(all.await(deadline))
			for _, part := range subsets(all, r.Rank(), deadline) { // {2, 0} and {0, 2}, in these orders
				pass(r, part, deadline)
				part.end(deadline)
			}
			all.end(deadline)
			return nil
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
func subsets(all communicator, rank int, deadline time.Time) []subset {
	part := commtest.Value(all.split(rank%2, -rank))
	commtest.Must(all.await(deadline))
	if rank == 1 {
		part.end(deadline)
		return nil
	}
	rest, err := all.shrink(1)
	if errors.Is(err, errors.ErrUnsupported) {
		return []subset{{part, 1 - rank/2}}
	}
	commtest.Must(err)
	commtest.Must(all.await(deadline))
	return []subset{{part, 1 - rank/2}, {rest, rank / 2}}
}

// end ends a communicator. Collective.
func (c communicator) end(deadline time.Time) {
	commtest.Must(c.await(deadline))
	commtest.Must(c.finish())
	commtest.Must(c.await(deadline))
	commtest.Must(c.destroy())
}

// pass sends a pattern from rank 0 of two to rank 1.
func pass(r *commtest.Rank, s subset, deadline time.Time) {
	const bytes = 100_000
	m := commtest.Value(r.Memory(bytes))
	want := pattern(bytes)
	commtest.Must(s.await(deadline))
	if handle := r.Compute.(handled).Handle(); s.rank == 0 {
		r.Compute.Copy(m, tensor.From(want))
		commtest.Must(s.send(m, 1, handle))
	} else {
		commtest.Must(s.recv(m, 0, handle))
	}
	commtest.Must(s.await(deadline))
	if s.rank == 0 {
		commtest.Must(r.Compute.Sync())
	} else {
		commtest.Must(holds(r.Compute, m, want))
	}
}
