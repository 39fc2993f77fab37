package contest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
)

// TestRivalsAreLegal: every list that a heuristic builds keeps to the cap and comes
// to an end, on instances and on small steps.
func TestRivalsAreLegal(t *testing.T) {
	all := instances(1)
	if len(all) != AllInstances {
		t.Errorf("%d instances, want %d", len(all), AllInstances)
	}
	list := slices.Clone(all[:10])
	for n := range 100 {
		p := small(n, 1)
		p.Vee = true
		list = append(list, p)
	}
	for _, p := range list {
		for _, s := range slices.Concat(p.automatic(), p.byNumbers(), p.greedyVees()) {
			if err := s.Check(func(int) int { return s.Map.Chunks * p.limit() }); err != nil {
				t.Fatalf("%v: %s of %d chunks: %v", p, s.Kind, s.Map.Chunks, err)
			}
		}
	}
}

// TestSummarize: means and the worst at each cap, and of all.
func TestSummarize(t *testing.T) {
	four := make([]cost.Stage, 4)
	got := Summarize([]Ratio{
		{Problem: Problem{Name: "a", Costs: four, InFlight: 2}, Over: 1.5},
		{Problem: Problem{Name: "b", Costs: four, InFlight: 2}, Over: 1, Open: true},
		{Problem: Problem{Name: "c", Costs: four, InFlight: 4, Vee: true}, Over: 2},
	}, Caps)
	want := []Summary{
		{"P/2", 2, 1, 1.25, 1.5, Problem{Name: "a", Costs: four, InFlight: 2}},
		{"V", 1, 0, 2, 2, Problem{Name: "c", Costs: four, InFlight: 4, Vee: true}},
		{"all", 3, 1, 1.5, 2, Problem{Name: "c", Costs: four, InFlight: 4, Vee: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAutoAgainstOthers: on a few steps auto is never far behind heuristics, and never
// ahead of the optimum, which is known.
func TestAutoAgainstOthers(t *testing.T) {
	for _, r := range Heuristics(20, 1) {
		if r.Over > 1.2 || r.Over < 0.5 {
			t.Errorf("%v: auto takes %.3f times what the best heuristic takes", r.Problem, r.Over)
		}
	}
	for _, r := range Optima(180, 1) {
		if r.Over < 1 || r.Over > 1.2 || r.Open {
			t.Errorf("%v: auto takes %.3f times the optimum, known: %v", r.Problem, r.Over, !r.Open)
		}
	}
}
