package dynamic

import (
	"reflect"
	"testing"
)

// TestChangesTogether: two changes of one step are one.
func TestChangesTogether(t *testing.T) {
	nothing := Change{}
	prune := Change{Kind: "prune", Costs: true, Detail: map[string]float64{"sparsity": 0.5}}
	freeze := Change{Kind: "freeze", Structure: true, Detail: map[string]float64{"layers": 2}}
	both := Change{Kind: "prune+freeze", Structure: true, Costs: true, Detail: map[string]float64{"sparsity": 0.5, "layers": 2}}
	for _, c := range []struct{ a, b, want Change }{
		{nothing, nothing, nothing}, {nothing, prune, prune}, {prune, nothing, prune}, {prune, freeze, both},
	} {
		if got := c.a.with(c.b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v with %+v is %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
	if len(prune.Detail) != 1 {
		t.Errorf("the first change has become %+v", prune)
	}
}
