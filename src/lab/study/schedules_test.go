package study

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestBubbles: idle time within a stage, and the bubble ratio of GPipe and 1F1B,
// (P-1)/(M+P-1), are what the formulas say.
func TestBubbles(t *testing.T) {
	list, err := Bubbles()
	expect.OK(t, err)
	for _, b := range list {
		if b.Idle != b.Formula {
			t.Errorf("%s, %d stages: a stage is idle for %v, want %v", b.Kind, b.Stages, b.Idle, b.Formula)
		}
		p, m := float64(b.Stages), float64(b.Microbatches)
		if (b.Kind == schedule.KindGPipe || b.Kind == schedule.Kind1F1B) && b.Ratio != (p-1)/(m+p-1) {
			t.Errorf("%s, %d stages: bubble ratio %v, want %v", b.Kind, b.Stages, b.Ratio, (p-1)/(m+p-1))
		}
	}
}

// TestZeroBubbleFormulas: every stage's idle time, from the fewest microbatches
// for which it is promised.
func TestZeroBubbleFormulas(t *testing.T) {
	for _, c := range []cost.Stage{
		{Forward: 1, Input: 1, Weight: 1}, {Forward: 2, Input: 3, Weight: 1}, {Forward: 1.5, Input: 1, Weight: 1},
		{Forward: 1, Input: 2, Weight: 1}, {Forward: 1, Input: 1, Weight: 0.5}, {Forward: 1, Input: 1},
	} {
		for _, k := range []struct {
			kind   schedule.Kind
			chunks int
			each   float64 // idle seconds per stage that follows
		}{
			{schedule.KindZBH1, 1, c.Forward + c.Input - c.Weight},
			{schedule.KindZBH2, 1, c.Forward + c.Input - 2*c.Weight},
			{schedule.KindZBV, 2, 0},
			{schedule.KindZBInterleaved, 2, c.Forward + c.Input - c.Weight},
			{schedule.KindZBInterleaved, 3, c.Forward + c.Input - c.Weight},
		} {
			if k.kind == schedule.KindZBV && (c.Forward != c.Input || c.Input != c.Weight) {
				continue
			}
			for stages := 1; stages <= 10; stages++ {
				for m := 2 * stages; m < 2*stages+4; m++ {
					s, err := schedule.New(k.kind, stages, k.chunks, m)
					expect.OK(t, err)
					r := sim.Run(sim.Step{Schedule: s, Costs: slices.Repeat([]cost.Stage{c}, s.Map.Virtual())})
					for stage, x := range r.Stage {
						if got, want := x.Seconds()-r.Busy[stage], float64(stages-1-stage)*k.each; got != want {
							t.Errorf("%s, %+v, stage %d of %d, %d microbatches: idle for %v, want %v", k.kind, c, stage, stages, m, got, want)
						}
					}
				}
			}
		}
	}
}

// TestPaperBubble: values of equation (1), computed by hand.
func TestPaperBubble(t *testing.T) {
	for _, tc := range []struct {
		name                       string
		p                          int
		forward, backward, message float64
		want                       float64
	}{
		{"P = 1", 1, 1, 2, 0, 0},
		{"no work", 4, 0, 0, 0, 0},
		// g = 0: only messages are idle, (12 - 8)/8 of them.
		{"P = 2, free messages", 2, 1, 2, 0, 0},
		{"P = 2, messages alone", 2, 0, 0, 1, 4.0 / 8},
		// g = 4: idle 2·4·2 = 16; span (32-8)·2 + 16·1 = 64.
		{"P = 4, free messages", 4, 1, 2, 0, 16.0 / 64},
		// g = 4: (12 + 24 - 2 - 8)·1 + 16 = 42; span 40·1 + 64 = 104.
		{"P = 4, messages", 4, 1, 2, 1, 42.0 / 104},
		// g = 264: idle 528·2 = 1056; span (1152-48)·2 + 576 = 2784.
		{"P = 24, free messages", 24, 1, 2, 0, 1056.0 / 2784},
		// (792 + 144 - 22 - 8)·0.5 + 1056 = 1509; span 1680·0.5 + 2784 = 3624.
		{"P = 24, messages", 24, 1, 2, 0.5, 1509.0 / 3624},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := PaperBubble(tc.p, tc.forward, tc.backward, tc.message); math.Abs(got-tc.want) > 1e-15 {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
