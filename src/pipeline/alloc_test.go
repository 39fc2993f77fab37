package pipeline_test

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/null"
	"dynmo/src/kind/attention"
	"dynmo/src/kind/exit"
	"dynmo/src/model"
	"dynmo/src/schedule"
)

// TestStepAllocatesNothing: after two steps every buffer and every list is
// there, on Go's heap and outside it, also where the number of tokens changes.
func TestStepAllocatesNothing(t *testing.T) {
	type setting struct {
		name string
		plan schedule.Schedule
		with []model.Extension
	}
	var cases []setting
	for _, name := range []string{"", "keeping", "alternating", "routing"} {
		for _, plan := range []schedule.Schedule{
			newSchedule(t, schedule.Kind1F1B, 1, 1), newSchedule(t, schedule.Kind1F1B, 3, 1),
			newSchedule(t, schedule.KindInterleaved, 2, 3), newSchedule(t, schedule.KindZBV, 3, 2),
		} {
			s := setting{name: name, plan: plan}
			if name != "" {
				s.with = append(s.with, extensions[name])
			}
			if name == "alternating" {
				s.with = append(s.with, attention.Buckets{Count: 4}) // an attention that is not dense
			}
			cases = append(cases, s)
		}
	}
	cases = append(cases, setting{name: "llama", plan: newSchedule(t, schedule.KindZBV, 3, 2)})
	for _, threshold := range []float64{-1, 2} { // all leave, none
		exits := exit.Exits{After: "2,4", Confidence: "classifier", Threshold: threshold, Probe: 0.5, Weight: 1}
		cases = append(cases, setting{plan: newSchedule(t, schedule.Kind1F1B, 3, 1), with: []model.Extension{exits}})
		exits.Propagate = true
		cases = append(cases, setting{plan: newSchedule(t, schedule.Kind1F1B, 3, 1), with: []model.Extension{exits}})
	}
	for _, v := range cases {
		c, plan := tiny, v.plan
		for _, e := range v.with {
			c = c.With(e)
		}
		if v.name == "llama" {
			c.Family, c.KeyValueHeads, c.Intermediate, c.NormEps, c.Rope.Base = "llama", 1, 7, 1e-5, 1e4
		}
		stages := plan.Map.Stages
		var per float64
		err := local.Run(stages, func(tr comm.Transport) error {
			clock := device.NewWall()
			r, err := runner(tr, c, plan, clock, null.New(clock, nil))
			if err != nil {
				return err
			}
			tokens, targets := r.feed(0)
			feed := func(int) ([]int32, []int32) { return tokens, targets }
			one := func() {
				if err == nil {
					_, err = r.Step(feed)
				}
			}
			for range 3 {
				one()
			}
			used := r.x.Device.Used()
			const steps = 20
			if tr.Rank() == 0 {
				per = testing.AllocsPerRun(steps, one) // counts those of all ranks
			} else {
				for range steps + 1 {
					one()
				}
			}
			if now := r.x.Device.Used(); now != used {
				t.Errorf("rank %d of %d: %d bytes allocated in a step", tr.Rank(), stages, now-used)
			}
			return err
		})
		expect.OK(t, err)
		if per != 0 {
			t.Errorf("%q, %s, %d stages: %v allocations in a step", v.name, plan.Kind, stages, per)
		}
	}
}
