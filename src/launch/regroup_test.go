package launch

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/layout"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/plan"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// regrouping is a balancer that packs the model after a step, with other microbatches. Otherwise it
// moves layers at random.
type regrouping struct {
	*script
	packing
}

// packing describes the layout after a packing, and its step.
type packing struct {
	step, stages, microbatches int
	kind                       schedule.Kind
	chunks                     int
}

func (r *regrouping) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	next, why, err := r.script.Decide(m, now)
	if err != nil || r.script.step != r.packing.step {
		return next, why, err
	}
	p := r.packing
	order, err := schedule.New(p.kind, p.stages, p.chunks, p.microbatches)
	if err != nil {
		return next, why, err
	}
	cuts := partitiontest.Random(random.Keyed(9, uint64(p.stages)), now.Cuts.Layers(), order.Map.Virtual())
	return now.With(cuts, order), why, nil
}

// packedRun trains with a packing in mid-run.
func packedRun(t *testing.T, c config.Config, p packing) *run {
	t.Helper()
	s := session{balancer: func() policy.Balancer { return &regrouping{&script{next: scatter(3)}, p} }}
	out := s.train(t, c)
	if len(out.losses) != c.Train.Steps || out.hash == "" {
		t.Fatalf("%d steps and hash %q, want %d steps and a hash", len(out.losses), out.hash, c.Train.Steps)
	}
	return out
}

// TestLargerMicrobatchesHaveTheSameSamples: microbatches become larger with a packing. Losses are
// those of a run that keeps its microbatches: the same bits before the packing, equal up to
// rounding after it. Metrics count the same samples.
func TestLargerMicrobatchesHaveTheSameSamples(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		c := small(t)
		c.Dynamic.Kind, c.Train.Steps, c.Model.Blocks = "none", 6, 4
		c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = 3, replicas, 6
		kept := packedRun(t, c, packing{2, 2, 6, schedule.Kind1F1B, 1})
		for _, microbatches := range []int{3, 1} {
			got := packedRun(t, c, packing{2, 2, microbatches, schedule.Kind1F1B, 1})
			if !slices.Equal(got.losses[:2], kept.losses[:2]) {
				t.Errorf("D=%d, %d microbatches: other losses before the packing", replicas, microbatches)
			}
			for step := 2; step < c.Train.Steps; step++ {
				if off := math.Abs(float64(got.losses[step]/kept.losses[step]) - 1); !(off < 1e-5) {
					t.Errorf("D=%d, %d microbatches, step %d: loss %v, with smaller ones %v", replicas, microbatches, step, got.losses[step], kept.losses[step])
				}
				if m := got.metrics[step]; m.BatchSize != kept.metrics[step].BatchSize || m.Microbatches != microbatches {
					t.Errorf("D=%d, step %d: %d sequences in %d microbatches, want %d in %d", replicas, step, m.BatchSize, m.Microbatches, kept.metrics[step].BatchSize, microbatches)
				}
			}
		}
	}
}

// TestLargerMicrobatchesAreSaved: a run resumes from a checkpoint of larger microbatches with the
// microbatches of its settings. Losses equal those of a run that kept them, up to rounding.
func TestLargerMicrobatchesAreSaved(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps, c.Model.Blocks = "none", 8, 4
	c.Parallel.Stages, c.Parallel.Microbatches = 3, 6
	whole := goRun(t, c, nil)
	dir := t.TempDir()
	first := session{dir: dir, stop: 5, balancer: func() policy.Balancer {
		return &regrouping{&script{next: scatter(3)}, packing{2, 2, 2, schedule.Kind1F1B, 1}}
	}}
	saved, end := first.train(t, c), first.outcome
	if !end.Stopped || end.Saved != 5 || saved.metrics[4].Microbatches != 2 {
		t.Fatalf("%+v, %d microbatches, want a checkpoint after 5 steps of 2", end, saved.metrics[4].Microbatches)
	}
	for _, stages := range []int{2, 3} {
		c.Parallel.Stages = stages
		then := session{dir: t.TempDir(), from: dir, balancer: scattered(uint64(stages))}
		rest := then.train(t, c)
		if got := joined(saved, rest); then.resumed.Step != 5 || len(got.losses) != c.Train.Steps {
			t.Fatalf("%d steps, resumed %+v", len(got.losses), then.resumed)
		} else {
			for step, loss := range got.losses {
				if off := math.Abs(float64(loss/whole.losses[step]) - 1); !(off < 1e-5) {
					t.Errorf("step %d: loss %v, want %v up to rounding", step, loss, whole.losses[step])
				}
			}
		}
		if m := rest.metrics[0].Microbatches; m != 0 {
			t.Errorf("%d microbatches after the resume, want those of the settings", m)
		}
	}
}
