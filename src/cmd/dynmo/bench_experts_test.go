package main

import (
	"encoding/json"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/nodebench"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// expertCostsOf writes costs of a mixture of experts, as profile does.
func expertCostsOf(t *testing.T, name string, sets ...string) {
	t.Helper()
	c, err := config.Load("", append([]string{
		"model.family=llama", "model.blocks=2", "model.hidden=16", "model.heads=2", "model.sequence=8", "model.grain=half", "dynamic.kind=moe",
	}, sets...))
	expect.OK(t, err)
	p := profile.Phase{Phase: cost.Phase{Model: search.Shape(c), Table: search.Dense(c)}}
	p.Clock = "sim"
	for i, l := range p.Layers {
		p.Layers[i] = l.With(cost.Stage{Forward: 1, Input: 1, Weight: 1})
	}
	text, err := json.Marshal(p)
	expect.OK(t, err)
	write(t, name, string(text))
}

// TestBenchExperts: every way on static cuts, with layers that move where capacity is
// adapted, then the speedups; lines are of at most 120 columns. Costs of another number of
// experts say nothing of a recording.
func TestBenchExperts(t *testing.T) {
	t.Chdir(t.TempDir())
	expertCostsOf(t, "mixtral.json")
	e := says("bench", "experts", "mixtral.json", "--only", "mixtral-24-aux,llama-24-aux")
	if e.status != exitFailure && e.status != exitDone || strings.Contains(e.stdout, "llama-24-aux") {
		t.Fatalf("status %d: %s%s", e.status, e.stdout, e.stderr)
	}
	rows := 0
	for line := range strings.Lines(e.stdout) {
		if strings.HasPrefix(line, "placed") || strings.HasPrefix(line, "adapted") || strings.HasPrefix(line, "fixed") || strings.HasPrefix(line, "equal") {
			rows++
		}
		if len(line) > 121 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if rows != 13 || !strings.Contains(e.stdout, "1.21x") || !strings.Contains(e.stdout, "1.18x") {
		t.Errorf("%d rows, want 13, and the paper's speedups:\n%s", rows, e.stdout)
	}
	e = says("bench", "experts", "mixtral.json", "--only", "mixtral-24-s-base", "--json")
	for _, r := range decodedLines[nodebench.Result](t, e.stdout) {
		if r.Clock != "sim" || r.Value <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestBenchExpertsRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	expertCostsOf(t, "mixtral.json")
	expertCostsOf(t, "whole.json", "model.grain=block")
	expertCostsOf(t, "spread.json", "parallel.experts=spread", "parallel.replicas=2")
	expertCostsOf(t, "dense.json", "dynamic.kind=none")
	write(t, "text.json", "no JSON")
	for want, args := range map[string][]string{
		"requires at least 1 arg":                                        {},
		"--only mine: want some of llama-24":                             {"mixtral.json", "--only", "mine"},
		"--replicas 0: want 1 to 4096":                                   {"mixtral.json", "--replicas", "0"},
		"--faster 0: want above 0":                                       {"mixtral.json", "--faster", "0"},
		"3 replicas: want a divisor of the 8":                            {"mixtral.json", "--replicas", "3"},
		"want those of parallel.experts=local":                           {"spread.json"},
		"want those of model.grain=half":                                 {"whole.json"},
		"want those of a mixture of experts":                             {"dense.json"},
		"mixtral.json: costs of 8 experts, as those of a file before it": {"mixtral.json", "mixtral.json"},
		"costs of [8] experts: none of llama-24-aux has as many":         {"mixtral.json", "--only", "llama-24-aux"},
		"text.json: no cost table":                                       {"text.json"},
		"nowhere.json: no such file":                                     {"nowhere.json"},
	} {
		says(append([]string{"bench", "experts"}, args...)...).refused(t, exitUsage, want)
	}
}

func TestBenchRoutingRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		"no whole checkpoint":               {"nowhere", "-o", "a.gz"},
		"--slots 0: want 1 to":              {"nowhere", "-o", "a.gz", "--slots", "0"},
		`required flag(s) "output" not set`: {"nowhere"},
	} {
		says(append([]string{"bench", "routing"}, args...)...).refused(t, exitUsage, want)
	}
}
