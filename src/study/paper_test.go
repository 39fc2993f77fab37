package study

import (
	"math"
	"testing"
)

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
