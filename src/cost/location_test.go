package cost

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/random"
)

func TestLocation(t *testing.T) {
	for _, c := range []struct {
		name string
		list []float64
		want float64
	}{
		{"none", nil, 0}, {"one", []float64{3}, 3}, {"two", []float64{4, 2}, 2},
		{"five, in no order", []float64{9, 1, 5, 3, 8}, 1 + (2+4*0.5)/2.5}, {"a quarter is disturbed", []float64{1, 1, 1, 50}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var list []Stage
			for _, x := range c.list {
				list = append(list, Stage{x, 2 * x, 0})
			}
			if got, want := Location(list), (Stage{c.want, 2 * c.want, 0}); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// TestHalve: a halved list gives the same statistics as the sorted list.
func TestHalve(t *testing.T) {
	draw := random.Keyed(3)
	for n := 1; n < 200; n++ {
		v := make([]float64, n)
		for i := range v {
			v[i] = math.Floor(draw.ExpFloat64() * float64(1+n%50)) // many of them equal
		}
		sorted := slices.Sorted(slices.Values(v))
		Halve(v)
		for name, of := range map[string]func([]float64) float64{"mean": LowerHalf, "error": LowerHalfError, "median": Median} {
			if got, want := of(v), of(sorted); math.Abs(got-want) > 1e-12*(1+want) {
				t.Errorf("%d values: %s %v, of the sorted ones %v", n, name, got, want)
			}
		}
		if got, want := Median(v), Quantile(sorted, 0.5); got != want {
			t.Errorf("%d values: median %v, want %v", n, got, want)
		}
	}
}
