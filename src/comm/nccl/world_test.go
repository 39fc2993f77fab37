//go:build cuda && cgo

package nccl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cuda"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/tensor"
)

// rank is what a test program of one rank has.
type rank struct {
	comm.Transport
	d       *cuda.Device
	compute device.Stream
	c       *carrier
	held    []tensor.Mem
}

// world runs a program on ranks that are goroutines, each on a GPU. On the
// emulator they share one, which NCCL would refuse.
func world(t *testing.T, ranks int, program func(*rank) error) {
	t.Helper()
	skipWithout(t, ranks)
	if err := local.Run(ranks, func(tr comm.Transport) error { return onGPU(tr, program) }); err != nil {
		t.Error(err)
	}
}

// skipWithout skips a test where ranks would have to share a GPU.
func skipWithout(t *testing.T, ranks int) {
	t.Helper()
	gpus, err := cuda.Visible()
	if err != nil {
		t.Fatal(err)
	}
	if gpus < ranks && !cudatest.Emulated(cudatest.New(t)) {
		t.Skipf("%d GPUs for %d ranks", gpus, ranks)
	}
}

// onGPU runs a rank's program with a carrier, which it aborts if it fails, and
// frees what the rank has allocated.
func onGPU(tr comm.Transport, program func(*rank) error) error {
	gpus, err := cuda.Visible()
	if err != nil {
		return err
	}
	d, err := cuda.New(device.NewWall(), tr.Rank()%gpus)
	if err != nil {
		return err
	}
	compute := d.NewStream()
	c, err := New(tr, d, compute)
	if err != nil {
		return err
	}
	r := &rank{Transport: tr, d: d, compute: compute, c: c.(*carrier)}
	if err := program(r); err != nil {
		c.Abort()
		return fmt.Errorf("rank %d: %w", tr.Rank(), err)
	}
	for _, m := range r.held {
		d.Free(m)
	}
	return d.Close()
}

// alloc returns device memory that onGPU frees.
func (r *rank) alloc(bytes int64) (tensor.Mem, error) {
	m, err := r.d.Alloc(bytes)
	r.held = append(r.held, m)
	return m, err
}

// pattern returns the bytes of message number index between two ranks.
func pattern(from, to, index int, length int64) []byte {
	data := make([]byte, length)
	state := uint32(from*7919 + to*104729 + index*1299709)
	for i := range data {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator
		data[i] = byte(state >> 24)
	}
	return data
}

// message is a message that a program sends or receives.
type message struct {
	handle comm.Handle
	mem    tensor.Mem
	want   []byte // nil for a send
}

// send begins to send a pattern, which the compute stream has yet to write.
func (r *rank) send(to, tag, index int, length int64) (*message, error) {
	m, err := r.alloc(length)
	if err != nil {
		return nil, err
	}
	if length > 0 {
		r.compute.Copy(m, tensor.From(pattern(r.Rank(), to, index, length)))
	}
	h, err := r.c.Send(to, tag, m, r.compute.Record(nil))
	return &message{h, m, nil}, err
}

func (r *rank) recv(from, tag, index int, length int64) (*message, error) {
	m, err := r.alloc(length)
	if err != nil {
		return nil, err
	}
	h, err := r.c.Recv(from, tag, m, nil)
	return &message{h, m, pattern(from, r.Rank(), index, length)}, err
}

var errLate = errors.New("not done in 20 s")

// wait polls handles until all are done.
func wait(handles ...comm.Handle) error {
	handles = slices.Clone(handles)
	for start := time.Now(); len(handles) > 0; {
		done, _, err := handles[0].Test(50 * time.Microsecond)
		switch {
		case err != nil:
			return err
		case done:
			handles = handles[1:]
		case time.Since(start) > 20*time.Second:
			return errLate
		}
	}
	return nil
}

// finish waits for messages, without the host waiting for their bytes, and looks
// at these with work of the compute stream.
func (r *rank) finish(all ...*message) error {
	for i, m := range all {
		if err := wait(m.handle); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if len(m.want) == 0 {
			continue
		}
		got := make([]byte, len(m.want))
		r.compute.Copy(tensor.From(got), m.mem)
		if err := r.compute.Sync(); err != nil {
			return err
		}
		if string(got) != string(m.want) {
			return fmt.Errorf("message %d of %d bytes: others were sent", i, len(m.want))
		}
	}
	return nil
}

// neighbours returns the ranks above and below, in a ring.
func (r *rank) neighbours() (above, below int) {
	return (r.Rank() + 1) % r.Size(), (r.Rank() + r.Size() - 1) % r.Size()
}

// roleVariable tells a process that a test has started what to do.
const roleVariable = "DYNMO_NCCL_TEST_ROLE"

// roles are what such processes do, by name.
var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	cudatest.Main(m)
}
