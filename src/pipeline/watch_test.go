package pipeline_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// quantised returns the states behind each layer of the model before training, its weights in int8
// by rows, for a microbatch: one whole model, layer by layer (Wang et al. 2022, Egeria).
func quantised(t *testing.T, c model.Config, tokens, targets []int32) (states [][]float32) {
	dev := cpu.New(device.NewWall())
	s, err := model.NewStage(c, c.All(), dev, tensor.F32)
	expect.OK(t, err)
	x := &model.Exec{Device: dev, Backend: ref.New(tensor.F32), Stream: dev.NewStream(), B: 2, T: c.Sequence, Scale: 1}
	expect.OK(t, x.Reserve(c))
	inp := tensor.Mem{}
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			w, length := tensor.Of[float32](p.W), p.Cols
			if length == 1 {
				length = p.Rows
			}
			for row := 0; row < len(w); row += length {
				largest := 0.0
				for _, x := range w[row : row+length] {
					largest = max(largest, math.Abs(float64(x)))
				}
				scale := float64(float32(largest / 127))
				for i := row; i < row+length && scale > 0; i++ {
					w[i] = float32(scale * math.RoundToEven(float64(w[i])/scale))
				}
			}
		}
		kept, err := dev.Alloc(l.Sizes(x).Kept)
		expect.OK(t, err)
		saved := model.Saved{Kept: kept}
		l.Feed(x, &x.Full, saved, tokens, targets)
		expect.OK(t, l.Forward(x, &x.Full, saved, inp))
		inp = l.Output(x, &x.Full, saved)
		states = append(states, tensor.Of[float32](inp))
	}
	return states
}

// TestSecondModel: the reference of layers is a whole model of quantised weights, fed from its own
// embedding on. That holds for any stages of its layers and in every schedule. The step has the
// losses of a step without the reference.
func TestSecondModel(t *testing.T) {
	watched, among := []int{2, 6}, 3
	var want [][][]float32 // by microbatch and layer
	data := feed(&model.Exec{B: 2, T: tiny.Sequence}, tiny.Vocab)
	for m := range among {
		tokens, targets := data(m)
		want = append(want, quantised(t, tiny, tokens, targets))
	}
	live := make(map[string][]float32)
	for i, plan := range []schedule.Schedule{
		newSchedule(t, schedule.Kind1F1B, 1, 1), newSchedule(t, schedule.Kind1F1B, 4, 1), newSchedule(t, schedule.KindInterleaved, 2, 3),
		newSchedule(t, schedule.KindZBV, 3, 2), crossing(),
	} {
		var mutex sync.Mutex
		compared := 0
		expect.OK(t, local.Run(plan.Map.Stages, func(tr comm.Transport) error {
			r, err := runner(tr, tiny, plan, device.NewWall(), ref.New(tensor.F32))
			if err != nil {
				return err
			}
			for _, l := range r.s.Layers {
				if l.Referred() {
					if err := l.Refer(r.x); err != nil {
						return err
					}
				}
			}
			if _, err := steps(r, 0.1); err != nil {
				return err
			}
			r.s.Watch = &model.Watch{Layers: watched, Microbatches: among, Compare: func(layer, m int, now, reference [][]float32) []cost.Count {
				mutex.Lock()
				defer mutex.Unlock()
				compared++
				key := fmt.Sprint(layer, m)
				for b, row := range reference {
					for k, x := range row {
						if at := b*len(row) + k; x != want[m][layer][at] {
							t.Fatalf("%s, layer %d, microbatch %d: state %d is %v, want %v", plan.Kind, layer, m, at, x, want[m][layer][at])
						}
						if at := b*len(row) + k; i == 0 {
							live[key] = append(live[key], now[b][k])
						} else if live[key][at] != now[b][k] {
							t.Fatalf("%s, layer %d, microbatch %d: state %d of the model differs", plan.Kind, layer, m, at)
						}
					}
				}
				return []cost.Count{{Name: "seen", Values: []int64{1}}}
			}}
			done, err := r.Step(r.feed)
			if err != nil {
				return err
			}
			seen := 0
			for _, count := range done.Counts {
				if count.Name == "seen" {
					seen++
				}
			}
			mine := 0
			for _, layer := range watched {
				if r.s.Layer(layer) != nil {
					mine += among
				}
			}
			if seen != mine {
				t.Errorf("%s: %d comparisons are told, want %d", plan.Kind, seen, mine)
			}
			return nil
		}))
		if compared != len(watched)*among {
			t.Errorf("%s: %d comparisons, want %d", plan.Kind, compared, len(watched)*among)
		}
	}
}
