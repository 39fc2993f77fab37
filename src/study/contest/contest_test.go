package contest

import (
	"testing"
)

// TestRivalsAreLegal: every list that a heuristic builds keeps to the cap and comes
// to an end, on instances and on small steps.
func TestRivalsAreLegal(t *testing.T) {
	all := instances()
	if len(all) != AllInstances {
		t.Errorf("%d instances, want %d", len(all), AllInstances)
	}
	list := all[:20]
	for n := range 100 {
		p := small(n)
		p.Vee = true
		list = append(list, p)
	}
	either := []bool{false, true}
	for i, p := range list {
		for _, a := range either {
			for _, b := range either {
				z := newZeroBubble(p, a, b, i%2 == 0)
				if s := z.build(z); !p.fits(s) {
					t.Fatalf("%v: overfill %v, skip %v: %v", p, a, b, s.Check(func(int) int { return p.limit() }))
				}
				v := newVee(p, float64(i%3)/2, a, b, i%2 == 0)
				if s := v.build(v); !p.fits(s) {
					t.Fatalf("%v: V, forward first %v, deep first %v: %v", p, a, b, s.Check(func(int) int { return 2 * p.limit() }))
				}
			}
		}
	}
}
