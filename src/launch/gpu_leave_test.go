//go:build cuda && cgo && mpi

package launch

import (
	"fmt"
	"strconv"
	"testing"

	"dynmo/src/device/cuda/cudatest"
)

func init() {
	left = func() error {
		if held, known := cudatest.Held(); known && held != (cudatest.Holding{}) {
			return fmt.Errorf("a rank that has left holds %+v", held)
		}
		return nil
	}
}

// TestLeaversHoldNoGPU: while others train on, a rank that left holds no memory, stream or
// communicator of its GPU. It holds no context either, and events go with the context. The test
// runs with memory carried by NCCL and by the host. The figures are those of one GPU. Ranks of one
// process need device.share, which hides whose memory it is, so each rank is a process.
func TestLeaversHoldNoGPU(t *testing.T) {
	needMPI(t)
	if _, emulated := cudatest.Held(); !emulated {
		t.Skip("the driver is not the emulator")
	}
	const ranks = 4
	t.Setenv("DYNMO_EMULATE_DEVICES", strconv.Itoa(ranks))
	for i, transport := range []string{"nccl", "host"} {
		if !long && transport == "nccl" {
			continue // TestEightGPUs covers it
		}
		c := find(t, "spread").settings(t, 0, "model.blocks=3 train.steps=5 schedule.kind=zb-h1 device.kind=cuda comm.transport="+transport)
		c.Parallel.Replicas, c.Data.Validation = 1+i, ""
		one := onOne(c)
		one.Device.Share = true
		still := goRun(t, one, nil)
		c.Parallel.Stages = ranks / c.Parallel.Replicas
		overMPI(t, ranks, []task{{c, map[int]int{1: c.Parallel.Stages - 1, 3: 1}, uint64(i)}}, []*run{still})
	}
}
