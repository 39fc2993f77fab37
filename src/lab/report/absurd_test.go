package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/record"
)

// TestPageOfAbsurdNumbers: whatever the files say, the page is no larger than
// one of usual numbers, and has no place that is none.
func TestPageOfAbsurdNumbers(t *testing.T) {
	usual := small.read(t)
	most := 2 * len(render(t, usual))
	each := func(change func(i int, m *record.Metrics)) func(*Run) {
		return func(r *Run) {
			for i := range r.Metrics {
				change(i, &r.Metrics[i])
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Run)
	}{
		{"all losses alike and huge", each(func(_ int, m *record.Metrics) { m.Loss = 8e15 })},
		{"losses a float apart", each(func(i int, m *record.Metrics) { m.Loss = 8e15 + record.Float(i%2) })},
		{"losses at the ends of floats", each(func(i int, m *record.Metrics) { m.Loss = record.Float(1-2*(i%2)) * math.MaxFloat64 })},
		{"tiny losses", each(func(i int, m *record.Metrics) { m.Loss = record.Float(i) * math.SmallestNonzeroFloat64 })},
		{"negative rates", each(func(i int, m *record.Metrics) { m.TokensPerSecond, m.StepSeconds = -1e300, -1 })},
		{"steps far away", each(func(i int, m *record.Metrics) { m.Step += 1e17 })},
		{"steps at the end of integers", each(func(i int, m *record.Metrics) { m.Step += math.MaxInt - 50 })},
		{"steps below 0", each(func(i int, m *record.Metrics) { m.Step -= 1e17 })},
		{"a last step far away", func(r *Run) { r.Metrics[len(r.Metrics)-1].Step = 1e17 }},
		{"a middle step far away", func(r *Run) { r.Metrics[20].Step = 1e17 }},
		{"events far away", func(r *Run) {
			for i := range r.Events {
				r.Events[i].Step = math.MaxInt - i
			}
		}},
		{"timelines far away", func(r *Run) {
			for i := range r.Timelines {
				r.Timelines[i].Step += math.MaxInt - 50
			}
		}},
		{"a long chain", each(func(_ int, m *record.Metrics) { m.Cuts = []int{0, 1, 2, 3, math.MaxInt} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := usual
			r.Metrics, r.Events, r.Timelines = slices.Clone(usual.Metrics), slices.Clone(usual.Events), slices.Clone(usual.Timelines)
			c.change(&r)
			text := render(t, r)
			if len(text) > most {
				t.Errorf("%d bytes, want at most %d", len(text), most)
			}
			for _, place := range []string{"NaN", "Inf\""} {
				if strings.Contains(strings.Replace(text, asset("uplot/uPlot.iife.min.js"), "", 1), place) {
					t.Errorf("%s on the page", place)
				}
			}
		})
	}
}
