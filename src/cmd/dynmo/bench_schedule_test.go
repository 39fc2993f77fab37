package main

import (
	"regexp"
	"testing"

	"dynmo/src/nodebench"
)

// TestBenchSchedule: the tables of schedules, and as JSON the same figures, all
// reached.
func TestBenchSchedule(t *testing.T) {
	skipUnderShort(t)
	table := said(t, "bench", "schedule")
	for _, row := range []string{
		`(?m)^zb-h1 +16 +48 +15 +15 +159 +0\.0943 +EXACT$`,
		`(?m)^zb-h2 +8 +24 +0 +0 +79 +0\.0886 +EXACT$`,
		`(?m)^equal +8 +16 +8 +- +1\.255 +1\.000 +- .* 1\.000 +PASS$`,
	} {
		if !regexp.MustCompile(row).MatchString(table) {
			t.Errorf("no row %s in\n%s", row, table)
		}
	}
	reach := 0
	for _, r := range decodedLines[nodebench.Result](t, said(t, "bench", "schedule", "--json")) {
		if r.Clock != "sim" || !r.OK || r.CPU == "" || r.Host == "" || r.Revision == "" || r.Date == "" {
			t.Errorf("%+v", r)
		}
		if r.Reach > 0 {
			reach++
		}
	}
	if reach != 30 {
		t.Errorf("%d figures have something to reach, want 30", reach)
	}
}
