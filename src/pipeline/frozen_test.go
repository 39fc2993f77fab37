package pipeline_test

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/kernel/ref"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// TestFrozenLayers: what is frozen stays as it is, and has no backward for weights;
// where all before a layer is frozen too it has no backward at all, and no gradient
// is sent there. The bits are those of one stage in every schedule. Under -short the head is
// in slices.
func TestFrozenLayers(t *testing.T) {
	for name, frozen := range map[string]func(layer int) bool{
		"first":  func(l int) bool { return l < 4 },
		"middle": func(l int) bool { return l == 3 || l == 4 },
		"both":   func(l int) bool { return l < 3 || l == 5 },
		"head":   func(l int) bool { return l == 0 || l >= 9 },
		"all":    func(int) bool { return true },
	} {
		for _, shards := range []int{1, 3} {
			if testing.Short() && shards == 1 {
				continue
			}
			c := tiny
			c.HeadShards = shards
			train := func(plan schedule.Schedule) (out outcome) {
				out.hashes = make([]string, c.Layers())
				first, from := 0, plan.Map.Virtual() // layer and virtual stage that is trained
				for first < c.Layers() && frozen(first) {
					first++
				}
				if first < c.Layers() {
					from = equal(c, plan.Map).Stage(first)
				}
				err := local.Run(plan.Map.Stages, func(tr comm.Transport) error {
					r, err := runner(tr, c, plan, device.NewWall(), ref.New(tensor.F32))
					if err != nil {
						return err
					}
					r.s.Freeze(frozen)
					if err := r.replan(equal(c, plan.Map), plan, pipeline.Options{}); err != nil {
						return err
					}
					before := make([]any, len(r.s.Layers))
					for i, l := range r.s.Layers {
						if before[i], err = l.Hash(); err != nil {
							return err
						}
					}
					losses, err := steps(r, 0.1)
					if err != nil {
						return err
					}
					for i, l := range r.s.Layers {
						sum, err := l.Hash()
						if err != nil {
							return err
						}
						if (before[i] != any(sum)) != l.Trains() || frozen(l.ID) && l.Trains() {
							t.Errorf("%s: frozen %v, trains %v, changed %v", l.Name, frozen(l.ID), l.Trains(), before[i] != any(sum))
						}
						out.hashes[l.ID] = fmt.Sprintf("%x", sum)
					}
					if tr.Rank() == 0 {
						out.losses = losses
					}
					done, err := r.Step(r.feed)
					if err != nil {
						return err
					}
					for _, span := range done.Spans {
						if span.Op == trace.W && !r.s.Layer(span.Layer).Trains() || span.Op == trace.I && span.Layer < first {
							t.Errorf("layer %d is frozen and does %v", span.Layer, span.Op)
						}
					}
					list := plan.SkipFrozen(from).Lists[tr.Rank()]
					if len(list) != len(done.Instructions) {
						t.Errorf("%d instructions, want %d", len(done.Instructions), len(list))
					}
					for i, span := range done.Instructions {
						if want := list[i]; span.Op != want.Op || span.End < span.Start {
							t.Errorf("span %+v of %v", span, want)
						}
					}
					return nil
				})
				if err != nil {
					t.Fatalf("%s: %v", plan.Kind, err)
				}
				return out
			}
			t.Run(fmt.Sprintf("%s/slices=%d", name, shards), func(t *testing.T) {
				want := train(newSchedule(t, schedule.KindGPipe, 1, 1))
				for _, plan := range []schedule.Schedule{
					newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.Kind1F1B, 10, 1), newSchedule(t, schedule.KindZBH2, 3, 1),
					newSchedule(t, schedule.KindInterleaved, 2, 3), newSchedule(t, schedule.KindZBV, 3, 2), crossing(),
				} {
					train(plan).agree(t, want, plan)
				}
			})
		}
	}
}
