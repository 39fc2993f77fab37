package comm

import (
	"math"
	"testing"
)

// TestTravel: when a message of 100 bytes leaves its link and arrives.
func TestTravel(t *testing.T) {
	slow := Network{Latency: 0.5, Bandwidth: 100}
	for _, tc := range []struct {
		name              string
		network           Network
		now, busy, factor float64
		leaves, arrives   float64
	}{
		{"free link", slow, 3, 2, 1, 4, 4.5},
		{"busy link", slow, 3, 5, 1, 6, 6.5},
		{"delayed, and as long on the link", slow, 3, 2, 4, 7, 9},
		{"delayed behind another", slow, 3, 5, 4, 9, 11},
		{"latency alone", Network{Latency: 2}, 3, 2, 1.5, 3, 6},
		{"costs nothing", Network{}, 3, 2, 4, 3, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leaves, arrives := tc.network.Travel(tc.now, tc.busy, 100, tc.factor)
			if leaves != tc.leaves || arrives != tc.arrives {
				t.Errorf("leaves at %v, arrives at %v, want %v and %v", leaves, arrives, tc.leaves, tc.arrives)
			}
		})
	}
	if got := slow.Seconds(100); got != 1.5 {
		t.Errorf("it takes %v seconds, want 1.5", got)
	}
}

// TestMeanDelay: factors average out at Mean.
func TestMeanDelay(t *testing.T) {
	for _, most := range []float64{0, 1, 4} {
		d, sum := Delay{Most: most, Seed: 7}, 0.0
		const n = 100_000
		for i := range uint64(n) {
			sum += d.Factor(1, 2, 3, i)
		}
		if mean := sum / n; math.Abs(mean-d.Mean()) > 0.01 {
			t.Errorf("delays up to %v average %v, want %v", most, mean, d.Mean())
		}
	}
}
