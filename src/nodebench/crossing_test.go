package nodebench

import (
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// TestCrossing: at the middle percentage the harmonic means of the three ratios are 0.5, 1 and 2. A
// line between two percentages passes 1 where the seconds do.
func TestCrossing(t *testing.T) {
	for _, c := range []struct {
		percents []int
		ratios   []float64 // by percentage, for each product
		want     float64
	}{
		{[]int{50, 90}, []float64{0.5, 2}, 77}, // seconds 2 and 0.5: the line passes 1 after two thirds of the way
		{[]int{90, 50}, []float64{2, 0.5}, 77},
		{[]int{50, 90}, []float64{1, 2}, 50},
		{[]int{50, 90}, []float64{0.3, 0.9}, 100},
		{[]int{50, 60, 70}, []float64{2, 0.5, 2}, 67}, // slower again in between: the last crossing counts
	} {
		var results []Result
		for _, ratio := range c.ratios {
			for range 3 {
				results = append(results, Result{Value: ratio})
			}
		}
		b := newBench(ref.New(tensor.F32), devcpu.New(device.NewWall()))
		b.crossing("spmm", c.percents, results)
		if got := b.results[0].Value; got != c.want {
			t.Errorf("%v: %v, want %v", c, got, c.want)
		}
	}
}
