package main

import (
	"regexp"
	"strings"
	"testing"

	"dynmo/src/nodebench"
)

// none are the flags by which auto and diffusion are held against nothing.
var none = []string{"--instances", "0", "--cases", "0", "--chains", "0"}

// TestBenchSchedule: the tables of schedules, and as JSON the same figures, all
// reached.
func TestBenchSchedule(t *testing.T) {
	skipUnderShort(t)
	table := said(t, append([]string{"bench", "schedule"}, none...)...)
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
	for _, r := range decodedLines[nodebench.Result](t, said(t, append([]string{"bench", "schedule", "--json"}, none...)...)) {
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

// TestBenchScheduleContests: auto and diffusion are held against others on as many
// steps as flags say; what is not reached makes the command fail.
func TestBenchScheduleContests(t *testing.T) {
	skipUnderShort(t)
	e := says("bench", "schedule", "--instances", "12", "--cases", "45", "--chains", "1", "--seed", "2")
	for _, row := range []string{
		`(?m)^auto +heuristics +P/2 +\d+ +[\d.]+ +- +[\d.]+ +- +\S.*, P=\d+, M=\d+, cap \d+, messages [\d.]+$`,
		`(?m)^auto +heuristics +all +12 +[\d.]+ \(<1\) +- +[\d.]+ \(1\.01\) +(PASS|FAIL) `,
		`(?m)^auto +optimum +all +45 +[\d.]+ \(1\.002\) +- +[\d.]+ \(1\.05\) +(PASS|FAIL) `,
		`(?m)^diffusion +optimum +steps +20 +- +[\d.]+ \(1\.02\) +[\d.]+ \(1\.06\) +(PASS|FAIL) +-$`,
	} {
		if !regexp.MustCompile(row).MatchString(e.stdout) {
			t.Errorf("no row %s in\n%s", row, e.stdout)
		}
	}
	if failed := strings.Contains(e.stdout, "FAIL"); failed != (e.status == exitFailure) {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
	for flag, value := range map[string]string{"--instances": "766", "--cases": "-1", "--chains": "-1"} {
		if e := says("bench", "schedule", flag, value); e.status != exitUsage || !strings.Contains(e.stderr, flag+" "+value+": want 0 to ") {
			t.Errorf("%s %s: status %d, %s", flag, value, e.status, e.stderr)
		}
	}
}

// TestComparisons: a mean that must stay below its limit, a largest that may reach it,
// and an optimum that is not known.
func TestComparisons(t *testing.T) {
	for _, c := range []struct {
		comparison
		want string
	}{
		{comparison{mean: limited{0.99, 1, true}, max: limited{1.01, 1.01, false}}, "PASS"},
		{comparison{mean: limited{1, 1, true}, max: limited{1, 1.01, false}}, "FAIL"},
		{comparison{mean: limited{0.99, 1, true}, max: limited{1.02, 1.01, false}}, "FAIL"},
		{comparison{max: limited{over: 3}}, "-"},
		{comparison{max: limited{1, 1.01, false}, open: 1}, "INVALID"},
	} {
		if got := c.verdict(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.comparison, got, c.want)
		}
	}
}
