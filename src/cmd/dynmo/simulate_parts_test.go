package main

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// TestSimulateSaysThatNothingChanges: a run generated with the defaults is dynamic. A run that is
// not dynamic prints a note, and is simulated.
func TestSimulateSaysThatNothingChanges(t *testing.T) {
	workbench(t, "")
	for _, c := range []struct {
		name string
		args []string
		note string
	}{
		{"prune", []string{"--dynamic", "prune"}, ""},
		{"prune in few steps", []string{"--dynamic", "prune", "--steps", "5"}, ""},
		{"prune too late", []string{"--dynamic", "prune", "--every", "1000"}, "note: --dynamic prune changes the model in none of 1000 steps; see --steps, --from and --every\n"},
		{"freeze behind the end", []string{"--dynamic", "freeze", "--from", "1000"}, "note: --dynamic freeze changes the model in none of 1000 steps; see --steps, --from and --every\n"},
		{"not dynamic", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := says(append([]string{"simulate", "run.toml", "--costs", "costs.json", "--json"}, c.args...)...)
			if e.status != exitDone || e.stderr != c.note {
				t.Errorf("status %d, says %q, want %q", e.status, e.stderr, c.note)
			}
			if changes := strings.Contains(e.stdout, `"change"`); changes == (c.note != "" || c.args == nil) {
				t.Errorf("the model changes: %v", changes)
			}
		})
	}
}

// TestSimulateTrace: a trace has at most run.trace_steps timelines. They are those of the record, and as
// long as the steps of the answer.
func TestSimulateTrace(t *testing.T) {
	workbench(t, "")
	a := decoded[simAnswer](t, append(sets("run.trace_steps=2"), "simulate", "run.toml", "--costs", "costs.json",
		"--dynamic", "freeze", "--steps", "60", "--every", "10", "--trace", "t.json", "--run-dir", "simulated")...)
	text := read(t, "t.json")
	steps, err := record.ReadTrace("t.json", strings.NewReader(text))
	expect.OK(t, err)
	if len(steps) != 2 || steps[0].Step != 0 || text != read(t, "simulated/trace.json") {
		t.Fatalf("%d steps, want 2 from step 0 on, and those of the record", len(steps))
	}
	end := 0.0
	for i, s := range steps {
		sum := s.Summary()
		k := slices.IndexFunc(a.Segments, func(of study.Segment) bool { return s.Step < of.Step+of.Steps })
		if of := a.Segments[k]; sum.Start < end || math.Abs(sum.Makespan()-float64(of.Makespan)) > 2e-9 {
			t.Errorf("timeline %d: step %d from %v, %v s, want it behind %v, %v s", i, s.Step, sum.Start, sum.Makespan(), end, of.Makespan)
		}
		end = sum.Finish
	}
}

// TestSimulateAll: each line of the table of all kinds agrees with a simulation of the kind alone.
func TestSimulateAll(t *testing.T) {
	workbench(t, "")
	args := []string{"simulate", "run.toml", "--costs", "costs.json", "--steps", "120"}
	text := said(t, append(args, "--dynamic", "all")...)
	list := decodedLines[simAnswer](t, said(t, append(args, "--dynamic", "all", "--json")...))
	if len(list) != len(dynamic.Workloads()) {
		t.Fatalf("%d answers, want %d", len(list), len(dynamic.Workloads()))
	}
	narrow(t, text)
	for i, w := range dynamic.Workloads() {
		a := list[i]
		one, err := json.Marshal(a)
		expect.OK(t, err)
		if alone := said(t, append(args, "--dynamic", w.Name, "--json")...); alone != string(one)+"\n" {
			t.Errorf("%s: %s, alone %s", w.Name, one, alone)
		}
		times := a.Moves
		for _, want := range []string{"\n" + w.Name + " ", " " + duration(a.Seconds/120) + " ", " " + ratio(a.Baselines[0].Speedup) + "x "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", w.Name, want, text)
			}
		}
		if (times == 0) != strings.Contains(text, fmt.Sprintf("\n%-14sno layer moved: ", w.Name)) {
			t.Errorf("%s moved %d times:\n%s", w.Name, times, text)
		}
	}
}

// TestSimulateAllMarksWhatNeverChanges: pruning whose products stay dense changes no seconds. Its row
// says so, as does the answer of the kind alone. With CSR the seconds change.
func TestSimulateAllMarksWhatNeverChanges(t *testing.T) {
	workbench(t, "")
	args := []string{"simulate", "run.toml", "--costs", "costs.json", "--steps", "50"}
	for _, c := range []struct {
		from string
		ends string // of the row
		only bool   // the answer of the kind alone says so
	}{{"1", "  fixed", true}, {"0.5", "  vary", false}} {
		set := []string{"--set", "prune.csr_from=" + c.from}
		text := said(t, slices.Concat(args, []string{"--dynamic", "all"}, set)...)
		i := strings.Index(text, "\nprune ")
		row, _, _ := strings.Cut(text[i+1:], "\n")
		if !strings.HasSuffix(strings.TrimRight(row, " "), c.ends) {
			t.Errorf("csr_from %s: row %q, want one that ends with %q", c.from, row, c.ends)
		}
		if alone := said(t, slices.Concat(args, []string{"--dynamic", "prune"}, set)...); strings.Contains(alone, "\nunchanged ") != c.only {
			t.Errorf("csr_from %s: alone\n%s", c.from, alone)
		}
	}
}

// TestSimulateCountsFreeMoves: on costs without bytes moves are counted, and the answer says that they were
// free.
func TestSimulateCountsFreeMoves(t *testing.T) {
	workbench(t, "")
	write(t, "free.json", regexp.MustCompile(`, "bytes": \{[^}]*\}`).ReplaceAllString(read(t, "costs.json"), ""))
	args := append([]string{"simulate", "run.toml", "--costs", "free.json"}, "--steps", "60", "--every", "10")
	const free = "\nno bytes      moves were free: the costs have no bytes; memory was not checked\n"
	one := append(args, "--dynamic", "freeze")
	a := decoded[simAnswer](t, one...)
	changed := 0 // cuts
	for i := range a.Segments[1:] {
		if !slices.Equal(a.Segments[i].Cuts, a.Segments[i+1].Cuts) {
			changed++
		}
	}
	if changed == 0 || a.Moves != changed || a.Moved != 0 || !a.Weightless {
		t.Errorf("%d moves of %d bytes, the cuts changed %d times; without bytes: %v", a.Moves, a.Moved, changed, a.Weightless)
	}
	if text := said(t, one...); !strings.Contains(text, free) || strings.Count(text, " free\n") != changed {
		t.Error(text)
	}
	if text := said(t, append(args, "--dynamic", "all")...); !strings.Contains(text, free) {
		t.Error(text)
	}
	if text := said(t, "simulate", "run.toml", "--costs", "costs.json"); strings.Contains(text, "no bytes") {
		t.Error(text)
	}
}
