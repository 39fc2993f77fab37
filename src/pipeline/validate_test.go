package pipeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/exit"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// placements are maps and replicas on which the validation loss must be the same.
func placements(t *testing.T, visit func(plan schedule.Schedule, replicas int)) {
	for _, v := range []struct {
		kind   schedule.Kind
		chunks int
	}{{schedule.Kind1F1B, 1}, {schedule.KindInterleaved, 2}, {schedule.KindInterleaved, 3}, {schedule.KindZBV, 2}} {
		for stages := 1; stages <= 4 && stages*v.chunks <= tiny.Layers(); stages++ {
			for replicas := 1; replicas <= 2; replicas++ {
				visit(newSchedule(t, v.kind, stages, v.chunks), replicas)
			}
		}
	}
}

// validating makes a rank that validates on n microbatches.
func validating(tr comm.Transport, c model.Config, plan schedule.Schedule, n int) (*member, error) {
	clock := device.NewWall()
	r, err := runnerOf(tr, c, plan, clock, ref.New(tensor.F32), comm.Options{Clock: clock})
	if err != nil {
		return nil, err
	}
	return r, r.replan(equal(c, plan.Map), plan, pipeline.Options{Validation: n})
}

// TestValidation: the loss of forward passes alone is the same bits on every rank, for every map
// and with and without replicas. That holds also for an odd number of microbatches, and where
// layers select tokens. For the microbatches of a step it is the step's loss. Under -short each
// model has one of the two numbers of microbatches, and every other map and replicas.
func TestValidation(t *testing.T) {
	for name, c := range map[string]model.Config{
		"whole": tiny, "slices": thinned("", false, true, 3), "selecting": thinned("thinning", true, false, 1), "routing": thinned("routing", true, true, 2),
	} {
		for _, n := range []int{microbatches, 7} {
			if testing.Short() && (n == 7) != (c.HeadShards > 1) {
				continue
			}
			var want float64
			visited := 0
			placements(t, func(plan schedule.Schedule, replicas int) {
				plans := visited / 2
				visited++
				if testing.Short() && (plans+replicas+c.HeadShards)%2 != 0 {
					return
				}
				losses := make([]float64, replicas*plan.Map.Stages)
				expect.OK(t, local.Run(len(losses), func(tr comm.Transport) error {
					r, err := validating(tr, c, plan, n)
					if err != nil {
						return err
					}
					losses[tr.Rank()], _, err = r.Validate(feed(r.x, c.Vocab))
					if err != nil || n != microbatches || replicas > 1 {
						return err
					}
					done, err := r.Step(r.feed)
					if err != nil {
						return err
					}
					agreed, err := r.Agree(done.Losses, pipeline.Nothing)
					if want := agreed.Loss; losses[tr.Rank()] != want {
						t.Errorf("%s, %s, %+v: %v, the step's loss is %v", name, plan.Kind, plan.Map, losses[tr.Rank()], want)
					}
					return err
				}))
				if want == 0 {
					want = losses[0]
				}
				if i := slices.IndexFunc(losses, func(x float64) bool { return x != want || x == 0 }); i >= 0 {
					t.Errorf("%s, %d microbatches, %s, %+v, D=%d: rank %d has %v, want %v", name, n, plan.Kind, plan.Map, replicas, i, losses[i], want)
				}
			})
		}
	}
}

// TestValidationAtTheLastLayer: where tokens leave at exits, the loss at the last layer is that of
// the same weights with a threshold that no confidence reaches.
func TestValidationAtTheLastLayer(t *testing.T) {
	for _, propagate := range []bool{false, true} {
		c := exiting("classifier", 0.5)
		modeltest.Edit(&c, func(k *exit.Exits) { k.Propagate = propagate })
		staying := c
		modeltest.Edit(&staying, func(k *exit.Exits) { k.Threshold = 2 })
		losses := func(c model.Config, stages int) (loss, last float64) {
			expect.OK(t, local.Run(stages, func(tr comm.Transport) error {
				r, err := validating(tr, c, newSchedule(t, schedule.Kind1F1B, stages, 1), 3)
				if err != nil {
					return err
				}
				a, b, err := r.Validate(feed(r.x, c.Vocab))
				if tr.Rank() == 0 {
					loss, last = a, b
				}
				return err
			}))
			return loss, last
		}
		want, same := losses(staying, 1)
		for stages := 1; stages <= 3; stages += 2 {
			if loss, last := losses(c, stages); last != want || same != want || loss == want {
				t.Errorf("propagate=%v, %d stages: loss %v, at the last layer %v, want %v there", propagate, stages, loss, last, want)
			}
		}
	}
}

// TestValidationLeavesTheStep: validation leaves the result of a step and the gradients as they
// are. The next steps are the same bits, and no memory of the device is taken.
func TestValidationLeavesTheStep(t *testing.T) {
	for _, plan := range []schedule.Schedule{newSchedule(t, schedule.Kind1F1B, 3, 1), newSchedule(t, schedule.KindZBV, 2, 2)} {
		want := train(t, tiny, plan).losses
		expect.OK(t, local.Run(plan.Map.Stages, func(tr comm.Transport) error {
			r, err := validating(tr, tiny, plan, 9)
			if err != nil {
				return err
			}
			used := r.x.Device.Used()
			for i := range want {
				done, err := r.Step(r.feed)
				if err != nil {
					return err
				}
				before := fmt.Sprint(done)
				if _, _, err := r.Validate(feed(r.x, tiny.Vocab)); err != nil {
					return err
				}
				if after := fmt.Sprint(done); after != before {
					t.Errorf("rank %d: the step's result changed from\n%s\nto\n%s", tr.Rank(), before, after)
				}
				agreed, err := r.Agree(done.Losses, pipeline.Nothing)
				if err == nil {
					err = r.Update(adam)
				}
				if err != nil {
					return err
				}
				if agreed != want[i] {
					t.Errorf("rank %d, step %d: %+v, want %+v", tr.Rank(), i, agreed, want[i])
				}
			}
			if now := r.x.Device.Used(); now != used {
				t.Errorf("rank %d: %d bytes allocated", tr.Rank(), now-used)
			}
			return nil
		}))
	}
}

// TestValidationOfManyChunks: more chunks on a stage than there are tags are refused.
func TestValidationOfManyChunks(t *testing.T) {
	many := partition.Map{Stages: 1, Chunks: comm.TagChunks + 1}
	c := model.Config{Blocks: comm.TagChunks, Hidden: 2, Heads: 1, Sequence: 1, Vocab: 2}
	l := layout.New(equal(c, many), schedule.Schedule{Map: many, Microbatches: 1}, 1, layout.StageMajor)
	err := local.Run(1, func(tr comm.Transport) error {
		world := comm.New(tr, comm.Options{})
		_, err := pipeline.New(&model.Exec{}, l, &model.Stage{Config: c}, pipeline.Groups{Stages: world, Replicas: world}, pipeline.Options{Validation: 1})
		return err
	})
	if want := "1025 chunks of a stage, want at most 1024 for validation"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
