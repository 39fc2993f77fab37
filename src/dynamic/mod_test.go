package dynamic_test

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/model"
)

// TestRoutingTells: the share of the tokens that routed blocks take is told when it has
// changed by a quarter, and never where it is always the same.
func TestRoutingTells(t *testing.T) {
	c := config.Default()
	c.Dynamic.Kind, c.Mod.Route = "mod", "predictor"
	kind := dynamic.New(c)
	for step, s := range []struct{ taken, told float64 }{{48, 0}, {50, 0.48}, {60, 0}, {61, 0}, {50, 0.61}, {48, 0}, {0, 0.48}, {0, -1}} {
		change, err := kind.Before(step, dynamic.Target{})
		expect.OK(t, err)
		want, news := s.told, s.told != 0
		if s.told < 0 {
			want = 0
		}
		if change.Detail["share"] != want || change.Costs != news || change.Structure || news != (change.Kind == "mod") {
			t.Errorf("step %d: %+v, want share %v", step, change, want)
		}
		expect.OK(t, kind.After(step, cost.Measurement{Counts: []cost.Count{
			{Name: "left", Values: []int64{7, 7, 7}},
			{Name: model.RoutingCounts, Values: []int64{30, 0, 30, 4, 5}}, {Name: model.RoutingCounts, Values: []int64{70, int64(s.taken), 60, 4, 5}},
		}}))
	}
	c.Mod.Route = "topk"
	kind = dynamic.New(c)
	expect.OK(t, kind.After(0, cost.Measurement{Counts: []cost.Count{{Name: model.RoutingCounts, Values: []int64{30, 9, 0, 0, 0}}}}))
	if change, err := kind.Before(1, dynamic.Target{}); err != nil || change.Kind != "" {
		t.Errorf("top-k: %+v, %v", change, err)
	}
}
