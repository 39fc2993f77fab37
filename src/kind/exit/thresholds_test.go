package exit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// exitSettings are those of a chain of 4 blocks with three exits.
func exitSettings(share float64) config.Config {
	c := config.Default()
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence = 4, 4, 1, 4
	c.Dynamic.Kind = "exit"
	c.Assign("exit.share", share, "exit.start", 10, "exit.until", 30)
	return c
}

// TestExitShareAtStep: nothing before the start, the whole share from the end on, a straight
// line between.
func TestExitShareAtStep(t *testing.T) {
	e := dynamic.New(exitSettings(0.6)).(*thresholds)
	for step, want := range map[int]float64{0: 0, 9: 0, 10: 0, 15: 0.15, 20: 0.3, 30: 0.6, 99: 0.6} {
		if got := e.at(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: share %v, want %v", step, got, want)
		}
	}
	if _, fixed := dynamic.New(exitSettings(0)).(dynamic.Nothing); !fixed {
		t.Error("thresholds move without a share")
	}
}

// TestThresholdsFollowTheShare: whatever confidences are like, as many tokens leave as the
// settings say, an equal part of them at each exit; where layers are does not matter.
func TestThresholdsFollowTheShare(t *testing.T) {
	for name, draw := range map[string]func(r *rand.Rand, exit int) float64{
		"even":   func(r *rand.Rand, _ int) float64 { return r.Float64() },
		"narrow": func(r *rand.Rand, exit int) float64 { return 0.1 + 0.2*float64(exit) + 0.002*r.Float64() },
		"low":    func(r *rand.Rand, _ int) float64 { return math.Pow(r.Float64(), 8) },
	} {
		c := exitSettings(0.6)
		e, shape, r := dynamic.New(c).(*thresholds), model.FromConfig(c), rand.New(rand.NewPCG(1, 2))
		s, err := model.NewStage(shape, shape.All(), cpu.New(device.NewWall()), tensor.F32)
		expect.OK(t, err)
		const tokens = 4000
		var gone, told int
		for step := range 60 {
			change, err := e.Before(step, dynamic.Target{Stage: s})
			expect.OK(t, err)
			if change.Kind != "" {
				told++
				if change.Costs || change.Detail["exit.0.threshold"] == 0 {
					t.Errorf("%s: %+v", name, change)
				}
			}
			var counts []cost.Count
			entered := tokens
			gone = 0
			for _, l := range s.Layers {
				threshold, ok := l.Tuning()
				if !ok {
					continue
				}
				number := int(l.Name[5] - '0')
				around := []int64{int64(math.Round(threshold * thresholdUnit))}
				for range offsets {
					around = append(around, 0)
				}
				left := 0
				for range entered {
					x := draw(r, number)
					for i, offset := range offsets {
						if x > threshold+offset {
							around[1+i]++
						}
					}
					if x > threshold {
						left++
					}
				}
				counts = append(counts, cost.Count{Name: Counts, Layer: l.ID, Values: []int64{int64(entered), int64(left), 0, 0, 0, 0, 0}},
					cost.Count{Name: aroundCounts, Layer: l.ID, Values: around})
				gone, entered = gone+left, entered-left
			}
			if share := float64(gone) / tokens; step <= 10 && gone > 0 || step >= 45 && math.Abs(share-0.6) > 0.06 {
				t.Errorf("%s, step %d: %v have left", name, step, share)
			}
			expect.OK(t, e.After(step, dynamic.SumCounts(dynamic.AllCounts(c), counts)))
		}
		if told < 9 || told > 11 {
			t.Errorf("%s: told %d times", name, told)
		}
	}
}

// TestNoTokenAtAnExit: thresholds of exits that no token reaches stay.
func TestNoTokenAtAnExit(t *testing.T) {
	c := exitSettings(0.6)
	e, shape := dynamic.New(c).(*thresholds), model.FromConfig(c)
	s, err := model.NewStage(shape, shape.All(), cpu.New(device.NewWall()), tensor.F32)
	expect.OK(t, err)
	_, err = e.Before(40, dynamic.Target{Stage: s})
	expect.OK(t, err)
	around := make([]int64, 1+len(offsets))
	var counts []cost.CountSum
	for _, layer := range []int{2, 4, 6} {
		counts = append(counts, cost.CountSum{Name: Counts, Layer: layer, Values: make([]int64, exitCounts)}, cost.CountSum{Name: aroundCounts, Layer: layer, Values: around})
	}
	expect.OK(t, e.After(40, counts))
	for _, layer := range []int{2, 4, 6} {
		if got, ok := s.Layer(layer).Tuning(); !ok || got != 1 {
			t.Errorf("%s: threshold %v, want 1 as before", fmt.Sprint(layer), got)
		}
	}
}
