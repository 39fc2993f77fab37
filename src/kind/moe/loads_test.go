package moe

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
)

// TestLoadsTell: the loads of experts are reported when the dropped share has changed by a quarter. Loads that
// drop nothing change nothing, however unequal they are.
func TestLoadsTell(t *testing.T) {
	c := config.Default()
	c.Dynamic.Kind = "moe"
	kind := dynamic.New(c)
	for step, s := range []struct {
		values []int64 // of one of two microbatches; the other has equal loads
		told   bool
	}{
		{[]int64{8, 0, 9, 9, 8, 8}, false},
		{[]int64{8, 0, 9, 9, 16, 0}, false},
		{[]int64{8, 8, 9, 9, 8, 0}, true},
		{[]int64{8, 8, 9, 9, 8, 0}, true}, // the mean of the last steps grows further
		{[]int64{0, 0, 0, 0, 0, 0}, false},
	} {
		expect.OK(t, kind.After(step, dynamic.SumCounts(dynamic.AllCounts(c), []cost.Count{
			{Name: "left", Values: []int64{7, 7, 7, 9, 9, 9}},
			{Name: Counts, Values: s.values}, {Name: Counts, Microbatch: 1, Values: []int64{8, 0, 1, 1, 8, 8}},
		})))
		change, err := kind.Before(step+1, dynamic.Target{})
		expect.OK(t, err)
		if told := change.Kind == "moe"; told != s.told || change.Costs != s.told || change.Structure {
			t.Errorf("step %d: %+v, want told %v", step, change, s.told)
		}
	}
}
