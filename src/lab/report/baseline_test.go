package report

import (
	"math"
	"testing"
)

// TestBaselines: phases with known results. The last two phases have the same costs. So the first
// cuts would have taken the same time after the move as before it.
func TestBaselines(t *testing.T) {
	r := small.read(t)
	list, err := r.baselines()
	if err != nil || len(list) != 3 {
		t.Fatalf("%d phases, %v; want 3", len(list), err)
	}
	before, after := r.Metrics[small.move], r.Metrics[small.move+1]
	gain := float64(before.Makespan / after.Makespan)
	if gain < 1.1 {
		t.Fatalf("the sample gains %v", gain)
	}
	for i, c := range []struct {
		steps  segment
		static float64 // as a multiple of the seconds used
	}{{segment{0, 10}, 1}, {segment{10, 15}, 1}, {segment{15, 40}, gain}} {
		b := list[i]
		if b.steps != c.steps || math.Abs(b.Static/b.Used-c.static) > 1e-9 || b.Used != float64(r.Metrics[c.steps.lo].StepSeconds) {
			t.Errorf("phase %d: %+v, want steps %v, on the first cuts %v times as long", i, b, c.steps, c.static)
		}
		if most := (1 + 1e-9) * min(b.Used, b.Static); b.Best > most {
			t.Errorf("phase %d: the best cuts take %v: %+v", i, b.Best, b)
		}
	}
	if list[1].Best >= 0.95*list[1].Used {
		t.Errorf("%+v: no better cuts than those before the move", list[1])
	}
}

// TestFirst: what the run was before anything moved or changed.
func TestFirst(t *testing.T) {
	r := small.read(t)
	if got := r.first(); got != (segment{0, 10}) {
		t.Errorf("%v, want the steps before the pruning at 10", got)
	}
	r.Events[1].Step = 4 // the move
	if got := r.first(); got != (segment{0, 5}) {
		t.Errorf("%v, want those up to the move behind 4", got)
	}
	if s, want := r.row(), r.Metrics[0].StepSeconds; math.Abs(float64(s.Before-want)) > 1e-12 {
		t.Errorf("before: %v, want %v", s.Before, want)
	}
	r.Events = nil
	if got := r.first(); got != (segment{0, 40}) {
		t.Errorf("%v, want the whole run", got)
	}
}
