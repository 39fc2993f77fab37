package routing

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/expect"
)

// TestMadeUp: 8 replicas share experts out evenly. The fullest has as much above the mean as the
// routing says, and the rows add up.
func TestMadeUp(t *testing.T) {
	w := MadeUp{Experts: 64, Replicas: 8, Rows: 1 << 16, Seed: 1}
	for name, want := range map[string][2]float64{ // of the fullest expert over the mean one, in the quietest and the busiest of steps
		"zipf-0.5": {3.2, 5.7}, "zipf-1": {10, 18}, "hot-rank": {2.5, 4.2}, "rotating": {5.5, 9}, "burst": {1.1, 24},
	} {
		rows, err := w.Named(name)
		expect.OK(t, err)
		least, most := math.Inf(1), 0.0
		for step := range 100 {
			list := rows(step, 3, step%4)
			sum := int64(0)
			for _, n := range list {
				sum += n
			}
			if math.Abs(float64(sum)/float64(w.Rows)-1) > 0.03 {
				t.Fatalf("%s: %d rows, want %d", name, sum, w.Rows)
			}
			if again := rows(step, 3, step%4); !slices.Equal(again, list) {
				t.Fatalf("%s: other rows the second time", name)
			}
			full := float64(slices.Max(list)) * 64 / float64(sum)
			least, most = min(least, full), max(most, full)
		}
		if least < want[0] || most > want[1] {
			t.Errorf("%s: the fullest expert has %.2f to %.2f times the mean, want within %v", name, least, most, want)
		}
	}
	if _, err := w.Named("mine"); err == nil {
		t.Error("a routing that is not there")
	}
}
