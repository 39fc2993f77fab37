//go:build cuda && cgo

package nccl

import (
	"fmt"
	"os"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/comm/local"
	"dynmo/src/comm/mpi"
	"dynmo/src/device"
	"dynmo/src/device/cuda"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
)

// gpus gives every rank a GPU. On the emulator they share one, which NCCL
// would refuse.
var gpus = commtest.DeviceWorld{
	Device: func(t comm.Transport) (device.Device, error) {
		count, err := cuda.Visible()
		if err != nil {
			return nil, err
		}
		return cuda.New(device.NewWall(), t.Rank()%count)
	},
	Transport: func(t comm.Transport, d device.Device, compute device.Stream) (comm.DeviceTransport, error) {
		return New(t, d, compute, ctas)
	},
}

// ctas is how many CTAs a communicator has in tests.
const ctas = 4

// world runs a program on ranks that are goroutines, with the messages of a chain of them.
func world(t *testing.T, ranks int, program func(r *commtest.Rank, m *messages) error) {
	t.Helper()
	skipWithout(t, ranks)
	err := local.Run(ranks, func(tr comm.Transport) error {
		return gpus.Run(tr, func(r *commtest.Rank) error {
			chain, _ := commtest.Within(r.DeviceTransport)
			return program(r, chain.(*chainTransport).messages)
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// skipWithout skips a test where ranks would have to share a GPU.
func skipWithout(t *testing.T, ranks int) {
	t.Helper()
	count, err := cuda.Visible()
	expect.OK(t, err)
	if count < ranks && !cudatest.Emulated(cudatest.New(t)) {
		t.Skipf("%d GPUs for %d ranks", count, ranks)
	}
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
		mpi.Exit(0) // if the role had MPI
		os.Exit(0)
	}
	m.Run()
}
