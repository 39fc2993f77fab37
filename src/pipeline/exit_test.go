package pipeline_test

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/exit"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// exiting is tiny with exits behind blocks 2, 4 and 5: of the tokens that are there at the
// first about half leave, then fewer, then all or nearly all.
func exiting(confidence string, threshold float64) model.Config {
	return tiny.With(exit.Exits{After: "2,4,5", Confidence: confidence, Threshold: threshold, Probe: 0.25, Weight: 0.3})
}

// TestExits: tokens leave at exits. Losses and updated weights are the same bits on one stage and on
// several, in every schedule, with and without replicas (law 3). That holds also where all leave at
// once, and where a microbatch or all of them have no token left. Under -short half of the cases
// run.
func TestExits(t *testing.T) {
	plans := []schedule.Schedule{
		newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindInterleaved, 2, 3), newSchedule(t, schedule.KindZBH2, 3, 1),
		newSchedule(t, schedule.KindZBV, 3, 2), newSchedule(t, schedule.Kind1F1B, 13, 1), crossing(), lateWeights(),
	}
	list := []model.Config{exiting("classifier", 0.5), exiting("softmax", 0.0317), exiting("saturation", 0.9), exiting("classifier", -1), exiting("softmax", 2)}
	for _, c := range list[1:4] {
		modeltest.Edit(&c, func(k *exit.Exits) { k.Propagate = true })
		list = append(list, c)
	}
	agree := exiting("classifier", 0.5)
	modeltest.Edit(&agree, func(k *exit.Exits) { k.Weighted, k.Agree = true, true })
	list = append(list, agree)
	for i, c := range list {
		for _, replicas := range []int{1, 2} {
			if replicas == 2 && i > 2 && i != 5 && i != 8 || testing.Short() && (i+replicas)%2 != 0 {
				continue
			}
			e := model.KindOf[exit.Exits](c)
			if c.Tied = replicas == 1; !e.Agree {
				c.HeadShards = replicas
			}
			t.Run(fmt.Sprintf("%s/%v/propagate=%v/agree=%v/D=%d", e.Confidence, e.Threshold, e.Propagate, e.Agree, replicas), func(t *testing.T) {
				want := trainReplicas(t, c, newSchedule(t, schedule.KindGPipe, 1, 1), replicas)
				for _, plan := range plans {
					if plan.Map.Virtual() <= c.Layers() {
						trainReplicas(t, c, plan, replicas).agree(t, want, plan)
					}
				}
			})
		}
	}
}

// TestExitCounts: what goes on from an exit enters the next, the same tokens wherever layers
// are.
func TestExitCounts(t *testing.T) {
	c, want := exiting("classifier", 0.5), map[string]int64{}
	for _, stages := range []int{1, 3} {
		err := local.Run(stages, func(tr comm.Transport) error {
			clock := device.NewWall()
			r, err := runnerOf(tr, c, newSchedule(t, schedule.Kind1F1B, stages, 1), clock, ref.New(tensor.F32), comm.Options{Clock: clock})
			if err != nil {
				return err
			}
			done, err := r.Step(r.feed)
			left := int64(0)
			for _, count := range done.Counts {
				key := fmt.Sprintf("%s of %d in %d", count.Name, count.Layer, count.Microbatch)
				if count.Name == exit.Counts {
					left += count.Values[1]
				}
				for i, v := range count.Values {
					if key := fmt.Sprintf("%s[%d]", key, i); stages == 1 {
						want[key] = v
					} else if want[key] != v {
						t.Errorf("%d stages: %s is %d, want %d", stages, key, v, want[key])
					}
				}
			}
			if stages == 1 && (left == 0 || left == 2*8*microbatches) {
				t.Errorf("%d tokens left: want some", left)
			}
			return err
		})
		expect.OK(t, err)
	}
	for m := range microbatches {
		entered := int64(2 * 8)
		for _, layer := range []int{3, 6, 8} {
			key := fmt.Sprintf("%s of %d in %d", exit.Counts, layer, m)
			if want[key+"[0]"] != entered {
				t.Errorf("%s: %d entered, want %d", key, want[key+"[0]"], entered)
			}
			entered -= want[key+"[1]"]
		}
	}
}

// TestClassifiersAlone: where only classifiers are trained no layer has a backward for inputs.
// Weights are the same bits as where all layers have one, in every schedule.
func TestClassifiersAlone(t *testing.T) {
	c := exiting("classifier", 0.5)
	modeltest.Edit(&c, func(k *exit.Exits) { k.Agree = true })
	train := func(plan schedule.Schedule, apart bool) []string {
		hashes := make([]string, c.Layers())
		expect.OK(t, local.Run(plan.Map.Stages, func(tr comm.Transport) error {
			r, err := runner(tr, c, plan, device.NewWall(), ref.New(tensor.F32))
			if err != nil {
				return err
			}
			for _, l := range r.s.Layers {
				l.Freeze(func(p *model.Param) bool { return !p.Apart })
				for _, p := range l.Params() {
					p.Apart = p.Apart && apart
				}
			}
			if err := r.replan(equal(c, plan.Map), plan, pipeline.Options{}); err != nil {
				return err
			}
			if _, err := steps(r, 0.1); err != nil {
				return err
			}
			for _, l := range r.s.Layers {
				sum, err := l.Hash()
				if err != nil {
					return err
				}
				hashes[l.ID] = fmt.Sprintf("%x", sum)
			}
			done, err := r.Step(r.feed)
			for _, span := range done.Spans {
				if apart && span.Op == trace.I {
					t.Errorf("%s: layer %d does %v", plan.Kind, span.Layer, span.Op)
				}
			}
			return err
		}))
		return hashes
	}
	want := train(newSchedule(t, schedule.KindGPipe, 1, 1), false)
	for _, plan := range []schedule.Schedule{newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindZBV, 3, 2)} {
		if got := train(plan, true); !slices.Equal(got, want) {
			t.Errorf("%s: other weights", plan.Kind)
		}
	}
}
