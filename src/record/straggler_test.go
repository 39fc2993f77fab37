package record

import (
	"strings"
	"testing"
)

// TestStragglerLog: a rank that is slow in every second report, as ranks that share cores
// are, gets a few lines and no more until it has been quiet for long.
func TestStragglerLog(t *testing.T) {
	var l stragglerLog
	flaps := func(from, to int) (lines []string) {
		for step := from; step < to; step += 10 {
			if line := l.line(step, Straggler{Rank: 2, Host: "node1", Score: 0.5, Over: step%20 != 0}); line != "" {
				lines = append(lines, line)
			}
		}
		return lines
	}
	first := flaps(0, 5000)
	if len(first) != stragglerLines {
		t.Fatalf("%d lines of 500 changes, want %d: %q", len(first), stragglerLines, first)
	}
	for i, line := range first {
		if last := i == len(first)-1; strings.Contains(line, "only in events.jsonl") != last {
			t.Errorf("line %d: %s", i, line)
		}
	}
	again := flaps(5000+stragglerPause, 5020+stragglerPause)
	if len(again) != 2 || !strings.Contains(again[0], "rank 2 (host node1) is a straggler: it takes 2.0 times as long") {
		t.Errorf("after %d steps without a change: %q, want its two changes", stragglerPause, again)
	}
}
