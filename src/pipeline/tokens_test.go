package pipeline_test

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// TestSomeTokens: with microbatches of fewer tokens than buffers have room for, in
// sequences of different lengths, every schedule gives the bits of one stage.
func TestSomeTokens(t *testing.T) {
	c := tiny
	c.HeadShards = 3
	train := func(plan schedule.Schedule) (out outcome) {
		out.hashes = make([]string, c.Layers())
		err := local.Run(plan.Map.Stages, func(tr comm.Transport) error {
			r, err := runner(tr, c, plan, device.NewWall(), ref.New(tensor.F32))
			if err != nil {
				return err
			}
			r.x.Full = model.Batch{
				Tokens: 9, Capacity: r.x.N(), Sequences: 3, Longest: 5, Offsets: tensor.From([]int32{0, 5, 5, 9}),
				Positions: tensor.From([]int32{0, 1, 2, 3, 4, 0, 1, 2, 3}),
			}
			feed := r.feed
			r.feed = func(m int) ([]int32, []int32) {
				tokens, targets := feed(m)
				return tokens[:9], targets[:9]
			}
			losses, err := steps(r, 0.1)
			if err != nil {
				return err
			}
			for _, l := range r.s.Layers {
				sum, err := l.Hash()
				if err != nil {
					return err
				}
				out.hashes[l.ID] = fmt.Sprintf("%x", sum)
			}
			if tr.Rank() == 0 {
				out.losses = losses
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", plan.Kind, err)
		}
		return out
	}
	want := train(newSchedule(t, schedule.KindGPipe, 1, 1))
	if want.losses[0].Loss <= want.losses[2].Loss {
		t.Errorf("the loss does not fall: %v", want.losses)
	}
	for _, plan := range []schedule.Schedule{
		newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindZBH2, 12, 1),
		newSchedule(t, schedule.KindInterleaved, 2, 3), newSchedule(t, schedule.KindZBV, 3, 2),
	} {
		train(plan).agree(t, want, plan)
	}
}
