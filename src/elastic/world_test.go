package elastic

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// of returns a layout of so many stages and replicas.
func of(t *testing.T, stages, replicas int, order mesh.Order) layout.Layout {
	t.Helper()
	s, err := schedule.New(schedule.Kind1F1B, stages, 1, 2)
	expect.OK(t, err)
	cuts := make(partition.Partition, stages+1)
	for i := range cuts {
		cuts[i] = i
	}
	return layout.New(cuts, s, replicas, order)
}

// TestResize: on either order of ranks, stages keep their numbers and replicas
// theirs, ranks without a place are outside, and a layout of the same mesh keeps
// the world.
func TestResize(t *testing.T) {
	for _, order := range []mesh.Order{mesh.StageMajor, mesh.ReplicaMajor} {
		const replicas = 2
		err := local.Run(4*replicas, func(tr comm.Transport) error {
			present := of(t, 4, replicas, order)
			w, err := Join(comm.New(tr, comm.Options{}), present)
			if err != nil {
				return err
			}
			stage, replica := w.Stages.Rank(), w.Replicas.Rank()
			if tr.Rank() != present.Mesh.Rank(stage, replica) {
				t.Errorf("%s: rank %d is stage %d of replica %d", order, tr.Rank(), stage, replica)
			}
			for _, stages := range []int{4, 3, 1} {
				next := of(t, stages, replicas, order)
				all := w.All
				if w, err = w.Resize(present, next); err != nil {
					return err
				}
				if w.Outside() != (stage >= stages) {
					t.Errorf("%s: stage %d is outside of %d stages: %v", order, stage, stages, w.Outside())
				}
				if w.Outside() {
					return nil
				}
				if stages == present.Stages() && w.All != all {
					t.Errorf("%s: another world for the same mesh", order)
				}
				if w.Stages.Rank() != stage || w.Stages.Size() != stages || w.Replicas.Rank() != replica || w.All.Rank() != next.Mesh.Rank(stage, replica) || w.All.Size() != next.Mesh.Size() {
					t.Errorf("%s: stage %d of replica %d is stage %d of %d, replica %d, rank %d of %d", order, stage, replica, w.Stages.Rank(), w.Stages.Size(), w.Replicas.Rank(), w.All.Rank(), w.All.Size())
				}
				present = next
			}
			return w.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
}
