package schedule

import (
	"testing"

	"dynmo/src/cost"
)

func TestSearchCases(t *testing.T) {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	for name, c := range map[string]struct {
		o    ListOptions
		want float64
	}{
		"a": {ListOptions{Costs: []cost.Stage{one.Scale(1.6), one.Scale(1.2), one.Scale(.8), one.Scale(.4)}, Microbatches: 8, InFlight: []int{2, 2, 2, 2}}, 43.2},
		"b": {ListOptions{Costs: []cost.Stage{{Forward: 4, Input: 4, Weight: 1}, {Forward: 3, Input: 2, Weight: 1}, {Forward: 3, Input: 1, Weight: 2}}, Microbatches: 3, InFlight: []int{2, 2, 2}}, 36},
		"c": {ListOptions{Costs: []cost.Stage{{Forward: .1, Input: 1, Weight: .1}, {Forward: 1, Input: .1, Weight: .1}, {Forward: 0, Input: .1, Weight: .1}}, Microbatches: 3, InFlight: []int{2, 2, 2}}, 4.8},
	} {
		l := NewLister(c.o)
		for _, theta := range []float64{0, .25, .5, .75} {
			for _, r := range []Rule{{}, {ForwardFirst: true}, {Drain: true}, {Patience: 1}, {Drain: true, Patience: 1}} {
				r.Theta = theta
				before := l.Run(r)
				s, after := Search(c.o, l.Schedule(), 2000, 0)
				if err := s.Check(func(i int) int { return c.o.InFlight[i] }); err != nil {
					t.Error(err)
				}
				t.Logf("%s %+v: %v, %v, want %v", name, r, before, after, c.want)
			}
		}
	}
}
