package study

import (
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/sim"
)

// TestContest: with a spare place copies leave little of the imbalance, more than any rival that
// drops nothing.
func TestContest(t *testing.T) {
	for kind, of := range dynamic.Contests() {
		list, err := Contest(kind, of, of.Cases[0], 1, sim.Uniform(0, 0))
		expect.OK(t, err)
		ours := list[len(list)-1]
		if ours.Over > of.Cases[0].Most || ours.Moves == 0 {
			t.Errorf("%+v, want at most %v of even work", ours, of.Cases[0].Most)
		}
		for _, c := range list[:len(list)-1] {
			if c.Over < ours.Over && c.Dropped == 0 {
				t.Errorf("%+v is better than %+v", c, ours)
			}
		}
	}
}
