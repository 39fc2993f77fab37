package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"
	"dynmo/src/nodebench"
	"dynmo/src/study/decisions"
)

// figuresByHand are one of each form: with a family, a noise, neither.
var figuresByHand = []decisions.Figure{
	{Kind: decisions.RegretP95, Noise: "one-sided-20", Balancer: "partition", Family: "heavy", Old: 1.142, New: 1.0123, Reach: 1.03},
	{Kind: decisions.Clean, Noise: "symmetric-20", Balancer: "diffusion", Old: 0, New: 0.9, Reach: 0.95},
	{Kind: decisions.SlowP95, Noise: "none", Balancer: "diffusion", Old: 80, New: 6},
	{Kind: decisions.SecondsRatio, Balancer: "partition", Old: 1, New: 0.7, Reach: 1},
}

// TestDecisionsTable: rows of old beside new, with the reach and the verdict of the
// new policy, in lines of at most 100 columns.
func TestDecisionsTable(t *testing.T) {
	var out strings.Builder
	checks := []decisions.Check{{Differ: 3}, {}}
	expect.OK(t, writeDecisions(&out, figuresByHand, checks, decisions.Default()))
	for _, row := range []string{
		"one-sided-20 partition heavy 1.142 1.012 <= 1.03 PASS", "symmetric-20 diffusion 0 0.9 >= 0.95 FAIL",
		"none diffusion 80 6 - -", "partition 1 0.7 <= 1 PASS", "Runs made on ranks too: 2; steps after which their cuts differ: 3",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), row) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "The same") || strings.HasPrefix(line, "Milliseconds") {
			continue // names a CPU
		}
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

// TestDecisionsResults: a line for each policy; the old one has nothing to reach, and
// steps that differ on ranks are wrong.
func TestDecisionsResults(t *testing.T) {
	pair := decisionResults(figuresByHand[1])
	want := []nodebench.Result{
		{Name: "decisions/clean_symmetric-20_diffusion_old", Unit: "ratio", OK: true, Clock: "sim"},
		{Name: "decisions/clean_symmetric-20_diffusion_new", Value: 0.9, Unit: "ratio", Reach: 0.95, Clock: "sim"},
	}
	for i, r := range pair {
		if r != want[i] {
			t.Errorf("%+v, want %+v", r, want[i])
		}
	}
	line, err := json.Marshal(pair[0])
	expect.OK(t, err)
	if strings.Contains(string(line), "reach") {
		t.Errorf("%s has a reach", line)
	}
	if r := checkResult([]decisions.Check{{Differ: 3}, {}}); r.Wrong != 3 || r.OK || r.Value != 2 {
		t.Errorf("%+v", r)
	}
}

func TestBenchDecisionsRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--seeds 0: want 1 to 1000":                                      {"--seeds", "0"},
		"--seeds 1001: want 1 to 1000":                                   {"--seeds", "1001"},
		`--every "often": want a number of steps of at least 1, or auto`: {"--every", "often"},
		`--noise "loud": want none, one-sided-20,`:                       {"--noise", "none,loud"},
		`--family "odd": want linear, pruned,`:                           {"--family", "odd"},
		"--threads: has no effect on bench decisions":                    {"--threads", "2"},
	} {
		e := says(append([]string{"bench", "decisions"}, args...)...)
		if e.status != exitUsage || !strings.Contains(e.stderr, want) || e.stdout != "" {
			t.Errorf("%v: status %d: %s%s", args, e.status, e.stdout, e.stderr)
		}
	}
}

// TestRunsBar: where no terminal is, a line comes after a while, and no more until
// another.
func TestRunsBar(t *testing.T) {
	var out strings.Builder
	b := newRunsBar(&out)
	b.show(1, 10)
	b.shown = b.shown.Add(-time.Hour)
	b.show(2, 10)
	b.show(3, 10)
	b.close()
	if out.String() != "2 of 10 runs\n" {
		t.Errorf("%q", out.String())
	}
}
