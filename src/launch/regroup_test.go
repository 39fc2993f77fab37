package launch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// regrouping is a balancer that packs the model after a step, in other microbatches, and
// otherwise moves layers at random.
type regrouping struct {
	*script
	packing
}

// packing is what becomes of a layout after a step.
type packing struct {
	step, stages, microbatches int
	kind                       schedule.Kind
	chunks                     int
}

func (r *regrouping) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, policy.Reason, error) {
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
	out := &run{}
	hash, err := observed(t, c, out, func() policy.Balancer { return &regrouping{&script{next: scatter(3)}, p} })
	expect.OK(t, err)
	if out.hash = hash; len(out.losses) != c.Train.Steps || hash == "" {
		t.Fatalf("%d steps and hash %q, want %d steps and a hash", len(out.losses), hash, c.Train.Steps)
	}
	return out
}

// observed trains with a balancer of each rank, nil for the one of the settings.
func observed(t *testing.T, c config.Config, o record.Observer, balancer func() policy.Balancer) (hash string, err error) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	err = local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		r, err := readyRank(c, tr, corpus, o)
		if err != nil {
			return err
		}
		defer r.Close()
		if balancer != nil {
			r.Balancer = balancer()
		}
		out, err := r.Loop()
		if tr.Rank() == 0 {
			hash = out.Hash
		}
		return err
	})
	return hash, err
}

// TestLargerMicrobatchesHaveTheSameSamples: where microbatches become larger with a packing,
// losses are those of a run that keeps them, to the bit before it and but for rounding
// after it; metrics are of as many samples.
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

// TestLayoutsOfLargerMicrobatchesAgree is law 1 after microbatches have become larger: from
// then on every loss, gradient norm and the final hash are the same in all layouts, under
// every schedule and of every kind of dynamism.
func TestLayoutsOfLargerMicrobatchesAgree(t *testing.T) {
	kinds := []struct {
		name string
		of   func(c config.Config) config.Config
	}{
		{"prune", func(c config.Config) config.Config { c.Model.Tied = false; return c }},
		{"exit+mod", func(c config.Config) config.Config { return mix{"exit+mod", softmax}.of(c) }},
		{"moe+exit", func(c config.Config) config.Config { return mix{"moe+exit", propagated}.of(spread(c)) }},
		{"moe+mod", func(c config.Config) config.Config { return mix{"moe+mod", dropping}.of(spread(c)) }},
		{"freeze+attention", func(c config.Config) config.Config { return mix{"freeze+attention", byPlasticity}.of(c) }},
	}
	for i, k := range kinds {
		c := k.of(small(t))
		c.Train.Steps, c.Parallel.Microbatches, c.Parallel.Stages = 5, 6, 2
		still := packedRun(t, c, packing{2, 1, 2, schedule.Kind1F1B, 1})
		for n, s := range schedules {
			if !long && (n+i)%3 != 0 {
				continue
			}
			c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = 3, s.kind, s.chunks
			if s.chunks > 2 || c.Layers() < 3*s.chunks {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", k.name, s.kind), func(t *testing.T) {
				same(t, packedRun(t, c, packing{2, 2, 2, schedule.Kind(s.kind), s.chunks}), still)
			})
		}
	}
}

// TestLargerMicrobatchesAreSaved: a run goes on from a checkpoint of larger microbatches
// with those of the settings: losses are those of a run that kept them but for rounding.
func TestLargerMicrobatchesAreSaved(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps, c.Model.Blocks = "none", 8, 4
	c.Parallel.Stages, c.Parallel.Microbatches = 3, 6
	whole := goRun(t, c, nil)
	dir := t.TempDir()
	first := part{dir: dir, stop: 5, balancer: func() policy.Balancer {
		return &regrouping{&script{next: scatter(3)}, packing{2, 2, 2, schedule.Kind1F1B, 1}}
	}}
	saved, end := first.train(t, c)
	if !end.Stopped || end.Saved != 5 || saved.metrics[4].Microbatches != 2 {
		t.Fatalf("%+v, %d microbatches, want a checkpoint after 5 steps of 2", end, saved.metrics[4].Microbatches)
	}
	for _, stages := range []int{2, 3} {
		c.Parallel.Stages = stages
		then := part{dir: t.TempDir(), from: dir}
		rest, _ := then.train(t, c)
		if got := joined(saved, rest); then.resumed.Step != 5 || len(got.losses) != c.Train.Steps {
			t.Fatalf("%d steps, resumed %+v", len(got.losses), then.resumed)
		} else {
			for step, loss := range got.losses {
				if off := math.Abs(float64(loss/whole.losses[step]) - 1); !(off < 1e-5) {
					t.Errorf("step %d: loss %v, want %v but for rounding", step, loss, whole.losses[step])
				}
			}
		}
		if m := rest.metrics[0].Microbatches; m != 0 {
			t.Errorf("%d microbatches after the resume, want those of the settings", m)
		}
	}
}
