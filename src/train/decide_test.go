package train

import (
	"encoding/json"
	"slices"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// TestConclusion: a layout whose instructions follow from costs arrives as the root has it.
func TestConclusion(t *testing.T) {
	f := newFed(t, settings(schedule.KindList, 1, "auto"))
	costs, cuts := plantest.Chain(layersOf, 3, 1), slices.Clone(f.layout.Cuts)
	cuts[1]++
	next := f.planner.Layout(costs, cuts)
	text, err := json.Marshal(conclusion{Shared: []byte{7}, Move: &relocation{Next: next, Behind: true, Own: []int{2}}})
	expect.OK(t, err)
	var got conclusion
	expect.OK(t, json.Unmarshal(text, &got))
	if m := got.Move; !m.Next.Equal(next) || next.Equal(f.layout) || !m.Behind || !slices.Equal(m.Own, []int{2}) || !slices.Equal(got.Shared, []byte{7}) {
		t.Errorf("%+v, %+v, want %+v", got, got.Move, next)
	}
}
