package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestTableOfADivergedRun: a loss that is NaN is shown as NaN, not as 0.
func TestTableOfADivergedRun(t *testing.T) {
	dir := recorded(t, record.Metrics{Clock: "virtual", Loss: 5.5, StepSeconds: 1},
		record.Metrics{Step: 1, Clock: "virtual", Loss: record.Float(math.NaN()), StepSeconds: 1})
	if out := said(t, "table", dir); !strings.Contains(out, " NaN ") {
		t.Errorf("no NaN in\n%s", out)
	}
}

// TestTableForPrograms: JSON and CSV have the figures of the table in base units, with all digits.
func TestTableForPrograms(t *testing.T) {
	step := record.Metrics{Clock: "wall", Loss: record.Float(math.NaN()), StepSeconds: 0.1234567890123, BubbleRatio: 0.25, Makespan: 0.1, Predicted: 0.08, Bottleneck: 2, Optimum: 1}
	dir, other := recorded(t, step), recorded(t, step)
	for _, c := range []struct {
		args []string
		want map[string]any // part of the first row
	}{
		{nil, map[string]any{"run": dir, "stages": 1.0, "clock": "wall", "loss": nil, "after_seconds": 0.1234567890123, "bubble_ratio": 0.25, "speedup": nil}},
		{[]string{"--phases"}, map[string]any{"makespan": 0.1, "predicted": 0.08, "makespan_to_predicted": 1.25, "gap": 1.0, "speedup": 1.0, "sparsity": 0.0}},
	} {
		args := append([]string{"table", dir, other}, c.args...)
		lines := decodedLines[map[string]any](t, said(t, append(args, "--json")...))
		table, err := csv.NewReader(strings.NewReader(said(t, append(args, "--csv")...))).ReadAll()
		expect.OK(t, err)
		if len(lines) != 2 || len(table) != 3 {
			t.Fatalf("%v: %d objects, %d lines of CSV", c.args, len(lines), len(table))
		}
		for name, want := range c.want {
			column := slices.Index(table[0], name)
			if lines[0][name] != want || column < 0 {
				t.Errorf("%s: %v, want %v; column %d of %v", name, lines[0][name], want, column, table[0])
				continue
			}
			if want == nil {
				want = "NaN"
			}
			if got := table[1][column]; got != fmt.Sprint(want) {
				t.Errorf("CSV: %s: %s, want %v", name, got, want)
			}
		}
		if len(table[0]) != len(lines[0]) {
			t.Errorf("CSV has the columns %v, JSON %v", table[0], lines[0])
		}
	}
	says("table", dir, "--json", "--csv").refused(t, exitUsage, "[csv json]", "see dynmo table --help")
}

// TestWideTable: a table has only the columns that fit on a terminal, and explains only these.
func TestWideTable(t *testing.T) {
	dir := recorded(t, record.Metrics{Clock: "virtual", Loss: 5.5, StepSeconds: 1})
	const unfinished = "\nrun is unfinished: 1 of 100 steps are recorded. It still trains, or was killed.\n"
	for _, c := range []struct {
		args []string
		more []string // columns of --wide only
	}{
		{nil, []string{"imbalance", "balancing", "headroom"}},
		{[]string{"--phases"}, []string{"bottleneck", "to first"}},
	} {
		args := append([]string{"table", dir}, c.args...)
		narrow, wide := said(t, args...), said(t, append(args, "--wide")...)
		if strings.Count(narrow, unfinished) != 1 {
			t.Errorf("%v: want %q in\n%s", c.args, unfinished, narrow)
		}
		for _, column := range c.more {
			if strings.Contains(narrow, column) || strings.Count(wide, column) < 2 {
				t.Errorf("%v: %s in\n%s\nor not twice in\n%s", c.args, column, narrow, wide)
			}
		}
	}
}

// TestTableOfATornFile: incomplete lines of a run's files are reported, and the others shown.
func TestTableOfATornFile(t *testing.T) {
	dir := recorded(t, record.Metrics{Clock: "virtual", Loss: 5.5, StepSeconds: 1})
	f, err := os.OpenFile(filepath.Join(dir, record.MetricsFile), os.O_APPEND|os.O_WRONLY, 0)
	expect.OK(t, err)
	_, err = f.WriteString(`{"step":1,"lo`)
	expect.OK(t, err)
	expect.OK(t, f.Close())
	e := says("table", dir)
	if want := "note: " + f.Name() + ":2: the last line is torn and left out\n"; e.status != exitDone || e.stderr != want || !strings.Contains(e.stdout, "5.5") {
		t.Errorf("status %d, %q, %q; want %q", e.status, e.stdout, e.stderr, want)
	}
}
