package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"dynmo/src/expect"
	"dynmo/src/nodebench"
)

// TestBenchScheduleRefuses: flags of other benchmarks that do nothing here.
func TestBenchScheduleRefuses(t *testing.T) {
	for _, flag := range [][2]string{{"--clock", "virtual"}, {"--threads", "2"}, {"--rounds", "3"}} {
		says("bench", "schedule", flag[0], flag[1]).refused(t, exitUsage, flag[0]+": has no effect")
	}
}

// TestBenchSchedule: both tables, and as JSON the same figures, all reached.
func TestBenchSchedule(t *testing.T) {
	bench := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		root := &cobra.Command{Use: "dynmo", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(benchCommand())
		if status := execute(root, append([]string{"bench", "schedule"}, args...), &stdout, &stderr); status != exitDone {
			t.Fatalf("status %d, %s", status, stderr.String())
		}
		return stdout.String()
	}
	table := bench()
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
	for line := range strings.Lines(bench("--json")) {
		var r nodebench.Result
		expect.OK(t, json.Unmarshal([]byte(line), &r))
		if r.Clock != "sim" || !r.OK {
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
