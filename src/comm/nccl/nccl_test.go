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
		m, err := r.Memory(2000)
		if err != nil {
			return err
		}
		var h comm.Handle
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
		m, err := r.Memory(1 << 20)
		if err != nil {
			return err
		}
		never, err := d.Recv(1-r.Rank(), 1, m, false, nil)
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			defer close(aborted)
			out, err := d.Send(1, 2, m, nil)
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
			if _, err := d.Recv(0, 2, m, false, nil); err != nil {
				return err
			}
			for !d.byRoute[route{0, 1}].base().comm.begun() && err == nil {
				_, _, err = never.Test(0)
			}
			if err != nil {
				return err
			}
			<-aborted // this rank answers no more
		}
		start := time.Now()
		d.Abort()
		if done, _, err := never.Test(0); !done || !errors.Is(err, errAborted) {
			return fmt.Errorf("after the abort: %v, %v", done, err)
		}
		for _, e := range d.endpoints {
			if err := e.base().stream.Sync(); err != nil {
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
	world(t, 2, func(r *commtest.Rank, d *transport) error {
		above, below := r.Neighbours()
		in, err := r.Recv(below, 0, 0, 7777)
		if err != nil {
			return err
		}
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
			all, err := begin(id, r.Rank(), 3)
			if err == nil {
				err = all.await(deadline)
			}
			if err != nil {
				return err
			}
			parts, err := subsets(all, r.Rank(), deadline)
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
			return all.end(deadline)
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
func subsets(all communicator, rank int, deadline time.Time) ([]subset, error) {
	part, err := all.split(rank%2, -rank)
	if err == nil {
		err = all.await(deadline)
	}
	if err != nil {
		return nil, err
	}
	if rank == 1 {
		return nil, part.end(deadline)
	}
	rest, err := all.shrink(1)
	if errors.Is(err, errors.ErrUnsupported) {
		return []subset{{part, 1 - rank/2}}, nil
	}
	if err == nil {
		err = all.await(deadline)
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
func pass(r *commtest.Rank, s subset, deadline time.Time) error {
	const bytes = 100_000
	m, err := r.Memory(bytes)
	if err != nil {
		return err
	}
	want := pattern(bytes)
	if err := s.await(deadline); err != nil {
		return err
	}
	if handle := r.Compute.(handled).Handle(); s.rank == 0 {
		r.Compute.Copy(m, tensor.From(want))
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
	if s.rank == 0 {
		return r.Compute.Sync()
	}
	return holds(r.Compute, m, want)
}
