package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/record"
)

// TestTicks: marks lie on the axis, in order, and are few, whatever its ends.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		name      string
		t         ticks
		low, high float64
		want      []string // nil: any
	}{
		{"plain", ticks{most: 5}, 0, 1, []string{"0", "0.2", "0.4", "0.6", "0.8", "1"}},
		{"steps", ticks{most: 8, least: 1}, 0, 3, []string{"0", "1", "2", "3"}},
		{"negative", ticks{most: 5}, -1, 1, []string{"-1", "-0.5", "0", "0.5", "1"}},
		{"tiny", ticks{most: 5}, 2e-9, 4e-9, []string{"2e-09", "2.5e-09", "3e-09", "3.5e-09", "4e-09"}},
		{"coarser than what is between floats", ticks{most: 5}, 8e15, 8e15 + 1, []string{"8e+15"}},
		{"steps between which floats do not tell", ticks{most: 8, least: 1}, 1e17, 1e17 + 100, []string{"1e+17"}},
		{"wide steps", ticks{most: 8, least: 1}, 0, 1e17, []string{"0", "2e+16", "4e+16", "6e+16", "8e+16", "1e+17"}},
		{"one digit apart", ticks{most: 5}, 1, math.Nextafter(1, 2), []string{"1"}},
		{"huge", ticks{most: 5}, -1e300, 1e300, []string{"-5e+299", "0", "5e+299"}},
		{"wider than any number", ticks{most: 5}, -1e308, 1e308, []string{}},
		{"least of all", ticks{most: 5}, 0, math.SmallestNonzeroFloat64, []string{}},
		{"equal", ticks{most: 5}, 3, 3, []string{}},
		{"upside down", ticks{most: 5}, 3, 2, []string{}},
		{"no number", ticks{most: 5}, math.NaN(), 1, []string{}},
		{"infinite", ticks{most: 5}, 0, math.Inf(1), []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := []string{}
			for _, mark := range c.t.Ticks(c.low, c.high) {
				if !(mark.Value >= c.low && mark.Value <= c.high) {
					t.Errorf("a mark at %v", mark.Value)
				}
				got = append(got, mark.Label)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

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
				r.Timelines[i].Step.Step += math.MaxInt - 50
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
				if strings.Contains(text, place) {
					t.Errorf("%s on the page", place)
				}
			}
		})
	}
}
