//go:build cuda && cgo && mpi

package launch

import (
	"fmt"
	"strconv"
	"testing"

	"dynmo/src/device/cuda/cudatest"
)

// TestEightGPUs is law 1 on two replicas of four stages, each rank a process with a GPU of
// its own and NCCL between them, while work of the GPUs begins late at random and threads
// run in another order: losses, gradient norms and the final hash are those of one stage of
// two replicas in the usual order, where layers move after every step, and where ranks leave
// in mid-run, which hold nothing of their GPUs any more. With DYNMO_LONG=1 under every kind
// of change, in both element types, with either order of ranks, and several seeds.
func TestEightGPUs(t *testing.T) {
	needMPI(t)
	if !cudatest.Emulated(cudatest.New(t)) {
		t.Skip("the driver is not the emulator")
	}
	const replicas, stages = 2, 4
	var tasks []task
	var want []*run
	for number := range departures {
		for _, precision := range []string{"f32", "bf16"} {
			if !long && (number != 0 || precision != "bf16") && (number != 6 || precision != "f32") {
				continue
			}
			for i, order := range []string{"stage-major", "replica-major"} {
				if !long && i != number%2 {
					continue
				}
				c := departing(t, number, "zb-h1", replicas, order)
				c.Device.Kind, c.Device.Precision, c.Comm.Carrier = "cuda", precision, "nccl"
				c.Model.Blocks, c.Train.Steps = 2, 4
				if long {
					c.Model.Blocks, c.Train.Steps = 4, 8
				}
				one := onOne(c)
				one.Device.Share = true
				still := goRun(t, one, nil)
				c.Parallel.Stages = stages
				leaves := task{c, map[int]int{1: 3, 2: 1}, uint64(i)}
				if tasks, want = append(tasks, leaves), append(want, still); long {
					tasks, want = append(tasks, task{c, map[int]int{}, 2}), append(want, still)
				}
			}
		}
	}
	t.Setenv("DYNMO_EMULATE_DEVICES", strconv.Itoa(replicas*stages))
	for _, seed := range []int{18, 19, 20} {
		if !long && seed != 18 {
			continue
		}
		t.Setenv("DYNMO_EMULATE_JITTER", strconv.Itoa(seed))
		t.Setenv("DYNMO_EMULATE_ORDER", fmt.Sprintf("random:%d", seed))
		for _, version := range []string{"22602", "21805", "22203", "22703"} { // each keeps groups differently
			t.Setenv("DYNMO_EMULATE_NCCL_VERSION", version)
			if overMPI(t, replicas*stages, tasks, want); !long {
				break
			}
		}
	}
}
