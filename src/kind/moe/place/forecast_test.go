package place

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestForecast: the mean where rows are noise, the line where they rise, the newest step after
// a jump.
func TestForecast(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	for _, c := range []struct {
		name   string
		rows   func(step int) []int64
		want   []float64
		within float64
	}{
		{"noise", func(int) []int64 {
			return []int64{int64(1000 + 50*rnd.NormFloat64()), int64(3000 + 50*rnd.NormFloat64())}
		}, []float64{1000, 3000}, 60},
		{"trend", func(step int) []int64 { return []int64{int64(1000 + 10*step), 3000} }, []float64{1200, 3000}, 1e-6},
		{"jump", func(step int) []int64 {
			if step < 19 {
				return []int64{1000, 3000, 0}
			}
			return []int64{500, 500, 3000}
		}, []float64{500, 500, 3000}, 1e-6},
		{"fewer experts", func(step int) []int64 { return make([]int64, 2+step%2) }, []float64{0, 0, 0}, 0},
	} {
		var f Forecast
		for step := range 20 {
			f.Observe(c.rows(step))
		}
		for e, want := range c.want {
			if math.Abs(f.Rows[e]-want) > c.within || math.IsNaN(f.Spread[e]) {
				t.Errorf("%s: expert %d: %v ± %v, want %v", c.name, e, f.Rows[e], f.Spread[e], want)
			}
		}
	}
}
