package pipeline

import (
	"math"
	"testing"
)

// TestWhole: a count of what is not finite is 0 on every processor.
func TestWhole(t *testing.T) {
	for x, want := range map[float64]int64{
		0: 0, 3.9: 3, -2.5: -2, 1e15: 1e15, math.NaN(): 0, math.Inf(1): 0, math.Inf(-1): 0, 1e300: 0, -1e19: 0,
	} {
		if got := whole(x); got != want {
			t.Errorf("%v is %d, want %d", x, got, want)
		}
	}
}
