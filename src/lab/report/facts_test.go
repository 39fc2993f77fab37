package report

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/lab/verdict"
)

// TestFacts: the first state, the gain over the first cuts and what is left to gain,
// with the spread; a run that never moved has no gain.
func TestFacts(t *testing.T) {
	r := small.read(t)
	s := r.summarise()
	for _, c := range []struct {
		name string
		w    *verdict.Result
		want []fact
	}{
		{"no costs", nil, nil},
		{"faster", &verdict.Result{Moved: true, Speedup: 1.5, Low: 1.4, High: 1.6, Draws: 9, Ceiling: 1.8}, []fact{
			{"gain by moving", "1.50×", "as fast as the first cuts, never moved (1.40 to 1.60), simulated on samples of the run's own costs"},
			{"left to gain", "1.20×", "the best cuts for every phase's costs would be 1.80× faster than the first"}}},
		{"older costs", &verdict.Result{Moved: true, Speedup: 1.5, Low: 1.5, High: 1.5, Ceiling: 1.5}, []fact{
			{"gain by moving", "1.50×", "as fast as the first cuts, never moved, simulated on the run's own costs"}}},
		{"noise", &verdict.Result{Moved: true, Speedup: 1.01, Low: 0.99, High: 1.03, Draws: 9, Ceiling: 1.1}, []fact{
			{"gain by moving", "within noise", "1.01 times as fast as the first cuts, never moved (0.99 to 1.03), simulated on samples of the run's own costs"}}},
		{"never moved", &verdict.Result{Speedup: 1, Ceiling: 1.4}, []fact{
			{"gain by moving", "none", "no layer moved: the first cuts were used throughout"},
			{"left to gain", "1.40×", "the best cuts for every phase's costs would be 1.40× faster than the first"}}},
	} {
		facts := r.facts(s, c.w)
		for _, want := range c.want {
			if !slices.Contains(facts, want) {
				t.Errorf("%s: %q, want %q among them", c.name, facts, want)
			}
		}
		if slices.ContainsFunc(facts, func(f fact) bool { return f.Name == "gain by moving" }) != (c.w != nil) {
			t.Errorf("%s: %q", c.name, facts)
		}
	}
	first, last := milliseconds(r.Metrics[0].StepSeconds), milliseconds(r.Metrics[39].StepSeconds)
	want := fact{"step time", first + " → " + last + " ms", "steps 0 to 9, before anything moved or changed → the end; medians, virtual clock"}
	if got := r.facts(s, nil)[0]; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestValidationIsShown: a curve beside the loss, and the last
// loss among the facts; neither in a run without validation.
func TestValidationIsShown(t *testing.T) {
	r := small.read(t)
	r.Metrics = slices.Clone(r.Metrics)
	for i, c := range []struct {
		steps  []int
		curves int
		want   fact
	}{
		{nil, 1, fact{}},
		{[]int{39}, 2, fact{"validation loss", "4.2", "after step 39, of data that nothing was trained on; perplexity 66.686"}},
		{[]int{9, 19, 39}, 2, fact{"validation loss", "4.2", "after step 39, of data that nothing was trained on; perplexity 66.686"}},
	} {
		for _, step := range c.steps {
			r.Metrics[step].ValidationLoss, r.Metrics[step].ValidationPerplexity, r.Metrics[step].ValidationSeconds = 4.2, 66.6863310, 1
		}
		loss := r.charts()[0]
		if len(loss.Curves) != c.curves || c.curves == 2 && (loss.Curves[1].Y[39] != 4.2 || finite(loss.Curves[1].Y[38])) {
			t.Errorf("case %d: curves %+v", i, loss.Curves)
		}
		facts := r.facts(r.summarise(), nil)
		if at := slices.IndexFunc(facts, func(f fact) bool { return f.Name == "validation loss" }); (at >= 0) != (c.steps != nil) || at >= 0 && facts[at] != c.want {
			t.Errorf("case %d: %q, want %q", i, facts, c.want)
		}
	}
	if text := render(t, r); !strings.Contains(text, `"name":"validation","style":"validation"`) {
		t.Error("the page draws no curve of the validation loss")
	}
}
