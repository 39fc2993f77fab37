package elastic

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// of returns a layout of stages and replicas.
func of(t *testing.T, stages, replicas int, order layout.RankOrder) layout.Layout {
	t.Helper()
	s, err := schedule.New(schedule.Kind1F1B, stages, 1, 2)
	expect.OK(t, err)
	cuts := make(partition.Partition, stages+1)
	for i := range cuts {
		cuts[i] = i
	}
	return layout.New(cuts, s, replicas, order)
}

// TestResize: ranks are the stages and replicas that the next layout makes them, whichever
// they were; those without a place are outside, a layout on the same ranks keeps the world,
// and Base is that of all throughout. The end waits for nobody who has left.
func TestResize(t *testing.T) {
	for _, order := range []layout.RankOrder{layout.StageMajor, layout.ReplicaMajor} {
		const replicas = 2
		steps := []layout.Layout{of(t, 4, replicas, order), of(t, 4, replicas, order), of(t, 3, replicas, order), of(t, 2, replicas, order), of(t, 1, replicas, order)}
		steps[2].Ranks, steps[3].Ranks, steps[4].Ranks = []int{0, 1, 3, 4, 6, 7}, []int{0, 4, 3, 7}, []int{0, 7}
		err := local.Run(4*replicas, func(tr comm.Transport) error {
			present := steps[0]
			w, err := Join(comm.New(tr, comm.Options{}), present)
			if err != nil {
				return err
			}
			for _, next := range steps {
				all, base := w.All, w.Base
				if w, err = w.Resize(present, next); err != nil {
					return err
				}
				rank, stays := next.Place(tr.Rank())
				if w.Outside() == stays || w.Base != base || w.Base.Rank() != tr.Rank() || w.Base.Size() != 4*replicas {
					t.Errorf("%s: rank %d is outside of %v: %v; all are %d", order, tr.Rank(), next.Ranks, w.Outside(), w.Base.Size())
				}
				if w.Outside() {
					return nil
				}
				if next.Mesh == present.Mesh && w.All != all {
					t.Errorf("%s: another world for the same ranks", order)
				}
				m := next.Mesh
				if w.Stages.Rank() != m.Stage(rank) || w.Stages.Size() != m.Stages || w.Replicas.Rank() != m.Replica(rank) || w.Replicas.Size() != replicas || w.All.Rank() != rank || w.All.Size() != m.Size() {
					t.Errorf("%s: rank %d of %v is stage %d of %d, replica %d, rank %d of %d", order, tr.Rank(), next.Ranks, w.Stages.Rank(), w.Stages.Size(), w.Replicas.Rank(), w.All.Rank(), w.All.Size())
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
