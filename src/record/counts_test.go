package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
)

// TestSumCounts: counts of microbatches add up, by name, then in chain order.
func TestSumCounts(t *testing.T) {
	layers := []cost.Layer{{Name: "embedding"}, {Name: "exit.0"}, {Name: "exit.1"}}
	got := sumCounts([]cost.Count{
		{Name: "exit", Layer: 1, Values: []int64{8, 2}}, {Name: "left", Layer: 1, Values: []int64{1}},
		{Name: "exit", Layer: 1, Microbatch: 1, Values: []int64{8, 3}}, {Name: "exit", Layer: 2, Values: []int64{6, 1}},
	}, layers)
	want := []LayerCounts{{"exit.0", "exit", []int64{16, 5}}, {"exit.1", "exit", []int64{6, 1}}, {"exit.0", "left", []int64{1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list := sumCounts(nil, layers); list != nil {
		t.Errorf("%v of nothing", list)
	}
}
