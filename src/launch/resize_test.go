package launch

import (
	"sync/atomic"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/schedule"
	"dynmo/src/train"
)

// shrinking is a balancer that takes stages away at some steps, and otherwise
// moves layers at random.
type shrinking struct {
	*script
	stages map[int]int // by step: stages from then on
}

func (s *shrinking) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	stages, shrinks := s.stages[s.step]
	next, why, err := s.script.Decide(m, now)
	if err != nil || !shrinks {
		return next, why, err
	}
	order, err := schedule.New(schedule.Kind1F1B, stages, 1, now.Schedule.Microbatches)
	cuts := make(partition.Partition, stages+1)
	for i := range cuts {
		cuts[i] = i * now.Cuts.Layers() / stages
	}
	return now.With(cuts, order), why, err
}

// TestLeavingChangesNothing is law 1 where ranks leave in mid-run: from 5 stages
// to 3 to 1, on either order of ranks; ranks that are left outside end, the others
// train on, and every loss, gradient norm and the final hash is that of one stage.
func TestLeavingChangesNothing(t *testing.T) {
	for _, order := range []string{"stage-major", "replica-major"} {
		for _, replicas := range []int{1, 2} {
			c := small(t)
			c.Parallel.Replicas, c.Mesh.Order = replicas, order
			still := goRun(t, c, nil)
			c.Parallel.Stages = 5
			out, left := shrunk(t, c, map[int]int{4: 3, 11: 1})
			if at := out.difference(still); at != "" {
				t.Errorf("D=%d, %s: differs from one stage at %s", replicas, order, at)
			}
			if want := int64(4 * replicas); left != want || len(out.losses) != c.Train.Steps {
				t.Errorf("D=%d, %s: %d ranks left and %d steps were run, want %d and %d", replicas, order, left, len(out.losses), want, c.Train.Steps)
			}
		}
	}
}

// shrunk trains with a balancer that takes stages away, and returns how many ranks
// left before the end.
func shrunk(t *testing.T, c config.Config, stages map[int]int) (*run, int64) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	out := &run{}
	var left atomic.Int64
	err = local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		r, err := readyRank(c, tr, corpus, out)
		if err != nil {
			return err
		}
		r.Balancer = &shrinking{&script{next: scatter(3)}, stages}
		var o train.Outcome
		if o, err = r.Loop(); err != nil {
			return err
		}
		if o.Left {
			left.Add(1)
		}
		if tr.Rank() == 0 {
			out.hash = o.Hash
		}
		r.Close()
		return r.Leave()
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, left.Load()
}
