package cost

import "testing"

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
