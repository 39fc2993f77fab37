//go:build cuda && cgo && mpi

package launch

import (
	"fmt"
	"strconv"
	"testing"

	"dynmo/src/device/cuda/cudatest"
)

// TestEightGPUs is law 1 on two replicas of four stages. Each rank is a process with a GPU of its
// own, and NCCL connects them. Work of the GPUs starts late at random, and threads run in another
// order. Losses, gradient norms and the final hash must be those of one stage of two replicas in
// the usual order, whose replicas have all masters and moments. That holds where layers move after
// every step, and where ranks leave in mid-run; ranks that left hold nothing of their GPUs.
// DYNMO_LONG=1 runs every kind of change, both element types, both orders of ranks, and several
// seeds.
func TestEightGPUs(t *testing.T) {
	needMPI(t)
	if !cudatest.Emulated(cudatest.New(t)) {
		t.Skip("the driver is not the emulator")
	}
	const replicas, stages = 2, 4
	size := "model.blocks=2 train.steps=4"
	if long {
		size = "model.blocks=4 train.steps=8"
	}
	var tasks []task
	var want []*run
	for number, r := range rows {
		for _, precision := range []string{"f32", "bf16"} {
			if !long && (r.name != "sharded, prune" || precision != "bf16") && (r.name != "spread, exit" || precision != "f32") {
				continue
			}
			for i, order := range []string{"stage-major", "replica-major"} {
				if !long && i != number%2 {
					continue
				}
				c := r.settings(t, 0, size, "schedule.kind=zb-h1 device.kind=cuda comm.transport=nccl exit.until=3 device.precision="+precision, "mesh.order="+order)
				c.Parallel.Replicas, c.Data.Validation = replicas, ""
				one := onOne(c)
				one.Device.Share, one.Optimizer.Shard = true, false
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
