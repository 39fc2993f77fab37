package report

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/lab/verdict"
)

// TestFacts: the step time at first and at the end.
func TestFacts(t *testing.T) {
	r := small.read(t)
	first, last := milliseconds(r.Metrics[0].StepSeconds), milliseconds(r.Metrics[39].StepSeconds)
	want := fact{"step time", first + " → " + last + " ms", "steps 0 to 9, before anything moved or changed → the end; medians, virtual clock"}
	if got := r.facts(r.row())[0]; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestShareOfPeak: throughput stands beside its share of what the hardware can do, if that is known.
func TestShareOfPeak(t *testing.T) {
	r := small.read(t)
	for _, c := range []struct {
		peak *verdict.Peak
		want string
	}{
		{nil, ""},
		{&verdict.Peak{Of: verdict.Sgemm, FLOPs: 4e10}, "25 % of sgemm, "},
		{&verdict.Peak{Of: verdict.DataSheet, FLOPs: 2e10}, "MFU 50 %, "},
	} {
		r.End = &verdict.Summary{Peak: c.peak}
		if got := r.ofPeak(1e10); got != c.want {
			t.Errorf("%+v: %q, want %q", c.peak, got, c.want)
		}
	}
	r.End.Peak = &verdict.Peak{Of: verdict.Sgemm, FLOPs: 1e9}
	facts := r.facts(r.row())
	if at := slices.IndexFunc(facts, func(f fact) bool { return f.Name == "throughput" }); !strings.Contains(facts[at].Note, " % of sgemm, of a rank") {
		t.Errorf("%+v", facts[at])
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
		facts := r.facts(r.row())
		if at := slices.IndexFunc(facts, func(f fact) bool { return f.Name == "validation loss" }); (at >= 0) != (c.steps != nil) || at >= 0 && facts[at] != c.want {
			t.Errorf("case %d: %q, want %q", i, facts, c.want)
		}
	}
	if text := render(t, r); !strings.Contains(text, `"name":"validation","style":"validation"`) {
		t.Error("the page draws no curve of the validation loss")
	}
}
