package main

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
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

// TestSimulateTrace: a trace has at most run.trace_steps segments. Their steps are those of the
// answer, one behind the other.
func TestSimulateTrace(t *testing.T) {
	workbench(t, "")
	a := decoded[simAnswer](t, append(sets("run.trace_steps=3"), "simulate", "run.toml", "--costs", "costs.json",
		"--dynamic", "moe", "--steps", "40", "--trace", "t.json")...)
	steps, err := record.ReadTrace("t.json", strings.NewReader(read(t, "t.json")))
	expect.OK(t, err)
	if len(steps) != 3 || len(a.Segments) < 40 {
		t.Fatalf("%d steps of %d segments, want 3", len(steps), len(a.Segments))
	}
	begin := 0.0
	for i, s := range steps {
		sum := s.Summary()
		if s.Step.Step != a.Segments[i].Step || math.Abs(sum.Start-begin) > 2e-9 || math.Abs(sum.Makespan()-a.Segments[i].Makespan) > 2e-9 {
			t.Errorf("timeline %d: step %d from %v, %v s, want step %d from %v, %v s", i, s.Step.Step, sum.Start, sum.Makespan(), a.Segments[i].Step, begin, a.Segments[i].Makespan)
		}
		begin += a.Segments[i].Makespan
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
		if want := decoded[simAnswer](t, append(args, "--dynamic", w.Name)...); !reflect.DeepEqual(a, want) {
			t.Errorf("%s: %+v, alone %+v", w.Name, a, want)
		}
		times, _ := a.moves()
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
