package comm

import (
	"testing"
	"time"
)

// TestRunTime: a gap in which the process did not run counts as mostGap.
func TestRunTime(t *testing.T) {
	var r RunTime
	at := time.Unix(1, 0)
	for _, c := range []struct{ gap, want time.Duration }{{0, 0}, {300 * time.Millisecond, 300 * time.Millisecond}, {time.Hour, 1300 * time.Millisecond}, {time.Second, 2300 * time.Millisecond}} {
		at = at.Add(c.gap)
		if got := r.At(at); got != c.want {
			t.Errorf("after a gap of %v: %v, want %v", c.gap, got, c.want)
		}
	}
}
