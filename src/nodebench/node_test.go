package nodebench

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
)

// TestHostRepeats makes checks under a watch that says which attempts were disturbed. A disturbed
// attempt is repeated, up to a bound. Figures count if one attempt was undisturbed.
func TestHostRepeats(t *testing.T) {
	for _, test := range []struct {
		name      string
		disturbed []int // attempts of each check, from 1 on
		attempts  int
		busy      string
	}{
		{"never disturbed", nil, 3, ""},
		{"the second attempt disturbed", []int{2}, 4, ""},
		{"one undisturbed attempt", []int{1, 2, 4, 5, 6}, 6, ""},
		{"always disturbed", []int{1, 2, 3, 4, 5, 6}, 3, "others took 2 cores, in all of 3 attempts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			begun, last, busy := map[string]int{}, "", map[string]string{}
			h := Host{
				Device: devcpu.New(device.NewWall()), Threads: 1, Seconds: 0.001, Folder: t.TempDir(), Small: true,
				Begin: func(check string) { begun[check]++; last = check },
				Done: func(results []Result, why string) {
					for _, r := range results {
						busy[r.Name] = why
						if r.Value < r.Low || r.Value > r.High || r.Value <= 0 {
							t.Errorf("%s: %g is no median between %g and %g", r.Name, r.Value, r.Low, r.High)
						}
					}
				},
				Watch: func() func(bool) string {
					return func(bool) string {
						if slices.Contains(test.disturbed, begun[last]) {
							return "others took 2 cores"
						}
						return ""
					}
				},
			}
			expect.OK(t, h.Measure())
			for _, check := range []string{"triad", "file"} { // there are no kernels for products
				if begun[check] != test.attempts {
					t.Errorf("%s: %d attempts, want %d", check, begun[check], test.attempts)
				}
			}
			if want := map[string]string{"triad": test.busy, "file_write": test.busy, "file_read": test.busy}; fmt.Sprint(busy) != fmt.Sprint(want) {
				t.Errorf("figures %v, want %v", busy, want)
			}
		})
	}
}

// TestHostMedian: a figure is the median of the rounds of all undisturbed attempts, with quartiles.
// The best round and a disturbed attempt do not move it.
func TestHostMedian(t *testing.T) {
	c := hostCheck{}
	c.add([]hostFigure{{"triad", "GB/s", []float64{1, 1, 1}, 1}}, "others took 2 cores")
	c.add([]hostFigure{{"triad", "GB/s", []float64{10, 20}, 0}}, "")
	c.add([]hostFigure{{"triad", "GB/s", []float64{2, 2, 2}, 0}}, "others took 2 cores")
	c.add([]hostFigure{{"triad", "GB/s", []float64{30, 40, 900}, 0}}, "")
	f := c.figures[0]
	if !slices.Equal(f.rates, []float64{10, 20, 30, 40, 900}) || f.wrong != 1 || c.undisturbed != 2 {
		t.Errorf("%+v", c)
	}
	c.figures[0].wrong = 0
	results, busy := c.results(devcpu.New(device.NewWall()))
	if r := results[0]; r.Value != 30 || r.Low < 10 || r.Low > 20 || r.High <= 30 || r.High >= 900 || busy != "" {
		t.Errorf("%g (%g to %g), busy %q", r.Value, r.Low, r.High, busy)
	}
}
