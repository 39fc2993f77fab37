package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
)

// TestLayerCounts: counts are sorted by name, then in chain order.
func TestLayerCounts(t *testing.T) {
	layers := []cost.Layer{{Name: "embedding"}, {Name: "exit.0"}, {Name: "exit.1"}}
	got := layerCounts([]cost.CountSum{
		{Name: "exit", Layer: 1, Values: []int64{16, 5}}, {Name: "left", Layer: 1, Values: []int64{1}}, {Name: "exit", Layer: 2, Values: []int64{6, 1}},
	}, layers)
	want := []LayerCounts{{"exit.0", "exit", []int64{16, 5}}, {"exit.1", "exit", []int64{6, 1}}, {"exit.0", "left", []int64{1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if list := layerCounts(nil, layers); list != nil {
		t.Errorf("%v of nothing", list)
	}
}
