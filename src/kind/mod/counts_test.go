package mod

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
)

// TestRoutingTells: the share of the tokens that routed blocks take is reported when its mean over
// some steps has changed by a quarter. It is never reported where it is always the same.
func TestRoutingTells(t *testing.T) {
	c := config.Default()
	c.Dynamic.Kind = "mod"
	c.Assign("mod.route", "predictor")
	kind := dynamic.New(c)
	taken, told := func(step int) int64 { return []int64{48, 96, 10}[min(2, step/20)] }, []float64(nil)
	for step := range 80 {
		change, err := kind.Before(step, dynamic.Target{})
		expect.OK(t, err)
		if change.Kind != "" {
			told = append(told, math.Round(100*change.Detail["taken"]))
		}
		if news := change.Kind == "mod"; change.Costs != news || change.Structure {
			t.Errorf("step %d: %+v", step, change)
		}
		expect.OK(t, kind.After(step, dynamic.SumCounts(dynamic.AllCounts(c), []cost.Count{
			{Name: "left", Values: []int64{7, 7, 7}},
			{Name: routedCounts, Values: []int64{30, 0, 30, 4, 5}}, {Name: routedCounts, Values: []int64{70, taken(step), 60, 4, 5}},
		})))
	}
	if want := []float64{48, 61, 77, 59, 46, 36, 28, 22, 17}; !slices.Equal(told, want) {
		t.Errorf("told were %v %%, want %v", told, want)
	}
	c.Assign("mod.route", "topk")
	kind = dynamic.New(c)
	expect.OK(t, kind.After(0, []cost.CountSum{{Name: routedCounts, Values: []int64{30, 9, 0, 0, 0}}}))
	if change, err := kind.Before(1, dynamic.Target{}); err != nil || change.Kind != "" {
		t.Errorf("top-k: %+v, %v", change, err)
	}
}
