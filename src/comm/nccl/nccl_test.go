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

// pattern returns bytes in which all blocks that NCCL may take differ.
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
				world(t, ranks, func(r *commtest.Rank, _ *messages) error { return c.Run(r) })
			})
		}
	}
}

// A message of another length than was expected is an error of the sender too,
// and both sides name both lengths, in either direction.
func TestLengthsDisagree(t *testing.T) {
	for sender := range 2 {
		world(t, 2, func(r *commtest.Rank, m *messages) error {
			mem := commtest.Value(r.Memory(2000))
			var h comm.Handle
			var err error
			if r.Rank() == sender {
				h, err = r.DeviceTransport.Send(1-sender, 3, mem.Span(0, 1000), nil)
			} else {
				h, err = r.DeviceTransport.Recv(sender, 3, mem, false, nil)
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
}

// An abort ends at once what waits for another rank on the GPU: a message on the
// stream whose other half is not issued.
func TestAbort(t *testing.T) {
	aborted := make(chan struct{})
	world(t, 2, func(r *commtest.Rank, m *messages) error {
		mem := commtest.Value(r.Memory(1 << 20))
		never := commtest.Value(m.begin(transfer{peer: 1 - r.Rank(), tag: 1, mem: mem}, nil))
		if r.Rank() == 0 {
			defer close(aborted)
			out := commtest.Value(m.begin(transfer{peer: 1, sends: true, tag: 2, mem: mem}, nil))
			for !out.enqueued {
				_, _, err := out.Test(0)
				commtest.Must(err)
			}
		} else {
			commtest.Value(m.begin(transfer{peer: 0, tag: 2, mem: mem}, nil))
			commtest.Must(m.pairs[0].drive()) // the other rank hears that there is room, and this one no more
			<-aborted
		}
		start := time.Now()
		r.DeviceTransport.Abort()
		if done, _, err := never.Test(0); !done || !errors.Is(err, errAborted) {
			return fmt.Errorf("after the abort: %v, %v", done, err)
		}
		commtest.Must(m.path.stream.Sync())
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
	world(t, 2, func(r *commtest.Rank, m *messages) error {
		above, below := r.Neighbours()
		from, to := commtest.Value(r.Memory(7777)), commtest.Value(r.Memory(7777))
		in := commtest.Value(r.DeviceTransport.Recv(below, 0, to, false, nil))
		out, err := r.DeviceTransport.Send(above, 0, from, nil)
		if err == nil {
			err = commtest.Wait(out, in)
		}
		for err == nil { // messages are done once they are enqueued; the fault may come later
			err = m.Drive()
		}
		if !strings.Contains(err.Error(), "network error") || !strings.Contains(err.Error(), "with rank") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// A round of other lengths than the ranks expect is an error on all that find out.
func TestRoundsDisagree(t *testing.T) {
	world(t, 2, func(r *commtest.Rank, _ *messages) error {
		_, world := commtest.Within(r.DeviceTransport)
		mem := commtest.Value(r.Memory(4000))
		other := 1 - r.Rank()
		sends := []comm.Part{{Rank: other, Mem: mem.Span(0, 1000)}}
		recvs := []comm.Part{{Rank: other, Mem: mem.Span(1000, int64(2000))}}
		err := commtest.Wait(commtest.Value(world.Exchange(sends, recvs, nil)))
		if err == nil || !strings.Contains(err.Error(), "sends 1000 bytes, but 2000 are expected") {
			return fmt.Errorf("want an error that names both lengths, got %v", err)
		}
		return nil
	})
}

// A closed transport refuses all calls: it waits for no rank and receives nothing.
func TestClosed(t *testing.T) {
	world(t, 2, func(r *commtest.Rank, m *messages) error {
		chain, world := commtest.Within(r.DeviceTransport)
		commtest.Must(r.DeviceTransport.Close())
		for _, err := range []error{chain.Drive(), world.Drive(), chain.Close(), world.Close()} {
			if !errors.Is(err, errClosed) {
				return fmt.Errorf("after the end: %v", err)
			}
		}
		return nil
	})
}

// Only neighbours exchange messages.
func TestNoNeighbour(t *testing.T) {
	world(t, 4, func(r *commtest.Rank, m *messages) (err error) {
		if r.Rank() == 1 {
			func() {
				defer func() { err = fmt.Errorf("%v", recover()) }()
				_, _ = m.begin(transfer{peer: 3, sends: true}, nil)
			}()
			if !strings.Contains(err.Error(), "no neighbour") {
				return err
			}
		}
		return r.DeviceTransport.Close()
	})
}
