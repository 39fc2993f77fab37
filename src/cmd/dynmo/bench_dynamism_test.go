package main

import (
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/study/dynamism"
)

// dynamismByHand is a case that reaches its ceiling, with too much overhead.
var dynamismByHand = dynamism.Figures{
	Case: dynamism.Case{Kind: "freeze", Short: "8-blocks", Strength: "the first 8 blocks", Interval: 50, Paper: 2.23, Over: "Egeria"},
	Rows: []dynamism.Row{
		{Name: "dense", Static: true, Step: 0.16, Total: 1, Speedup: 0.9},
		{Name: "uniform", Static: true, Step: 0.15, Imbalance: 0.85, Bubble: 0.37, Total: 1.06, Speedup: 1},
		{Name: "partition by time", Step: 0.12, Imbalance: 0.1, Bubble: 0.25, Overhead: 0.03, Rare: 0.012, Moves: 1, Total: 1.33, Speedup: 1.25},
	},
	Static: 1, Best: 2, Ceiling: 1.28, Possible: 1.26,
}

// TestDynamismTables: what is reached of the ceiling, and the overhead as rarely as in the
// paper, have verdicts; lines are of at most 120 columns.
func TestDynamismTables(t *testing.T) {
	var out strings.Builder
	expect.OK(t, writeCase(&out, dynamismByHand))
	expect.OK(t, writeCases(&out, []dynamism.Figures{dynamismByHand}))
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, row := range []string{
		"freeze: the first 8 blocks (clock=virtual)", "dense 160.00 0.00 0.000 0.00 0 1.00x -",
		"partition by time 120.00 0.10 0.250 3.00 1 1.33x 1.25x",
		"freeze-8-blocks 1 1.33x 1.25x 1.26x 1.28x 0.98 (0.95) PASS 1.20 (1) FAIL 2.23x Egeria",
	} {
		if !strings.Contains(text, row) {
			t.Errorf("no %q in\n%s", row, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 121 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	verdicts := make(map[string]string)
	for _, r := range dynamismResults(dynamismByHand) {
		verdicts[r.Name] = r.Verdict()
		if r.Clock != "virtual" {
			t.Errorf("%+v", r)
		}
	}
	for name, want := range map[string]string{
		"dynamism/freeze-8-blocks_partition_by_time_step": "-", "dynamism/freeze-8-blocks_of_ceiling": "PASS", "dynamism/freeze-8-blocks_not_balancing": "FAIL",
	} {
		if verdicts[name] != want {
			t.Errorf("%s: %q, want %q in %v", name, verdicts[name], want, verdicts)
		}
	}
}

func TestBenchDynamismRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--kind shrink: want some of prune, freeze,":       {"--kind", "prune,shrink"},
		"--only speed: want some of work, balancing":       {"--only", "speed"},
		"--steps 3: want 12 to 10000":                      {"--steps", "3"},
		"--clock virtual counts one thread: want":          {"--clock", "virtual", "--threads", "2"},
		`unknown command "now" for "dynmo bench dynamism"`: {"now"},
	} {
		says(append([]string{"bench", "dynamism"}, args...)...).refused(t, exitUsage, want)
	}
}
