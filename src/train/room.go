package train

import (
	"fmt"

	"dynmo/src/layout"
	"dynmo/src/profile"
)

// lacks returns an error if the GPU of a rank of the launched world, this one, has less memory
// than its stage of the next layout takes, by the plan's accounting, and the communicators of
// the next world. A rank that leaves lacks nothing. On a CPU the system lends memory, so that
// only an allocation that fails tells.
func (r *Rank) lacks(rank int, m profile.Measurement, next layout.Layout) error {
	gpu, ok := r.Device.(interface {
		Memory() (free, total int64, err error)
	})
	at, stays := next.Place(rank)
	if !ok || !stays {
		return nil
	}
	planner, err := r.planner.Match(next)
	if err != nil {
		return err
	}
	stage := next.Mesh.Stage(at)
	need := planner.Bytes(m.Table, next.Cuts, next.Schedule.Peaks())[stage]
	if r.TransportBytes != nil {
		need += r.TransportBytes(next.Mesh.Stages, next.Mesh.Replicas)
	}
	free, _, err := gpu.Memory()
	if err != nil {
		return err
	}
	if room := free + r.Device.Used() + r.Device.Kept(); need > room {
		return fmt.Errorf("stage %d of the next layout needs %.2f GiB of the GPU, which has %.2f GiB for it",
			stage, gib(need), gib(room))
	}
	return nil
}

// gib returns bytes in GiB.
func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
