package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// megatronLog writes the times of Megatron-LM for 32 blocks on four stages and 16 microbatches, in
// milliseconds: blocks take 10 and 20, the embedding 0.5 and 0.5, the head 14 and 28.
func megatronLog(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for n := range 5 {
		fmt.Fprintf(&b, " iteration %8d/     100 | consumed samples: 16 |\ntimes across ranks (ms):\n", max(1, 10*n))
		for timer, list := range [][]float64{{1288, 1280, 1280, 1504}, {2568, 2560, 2560, 3008}} {
			fmt.Fprintf(&b, "  %s:\n", []string{"forward-compute", "backward-compute"}[timer])
			for rank, x := range list {
				fmt.Fprintf(&b, "     rank %2d: %.2f\n", rank, x)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "run.log")
	expect.OK(t, os.WriteFile(path, []byte(b.String()), 0o644))
	return path
}

// TestCosts: the costs of a log go into dynmo layout.
func TestCosts(t *testing.T) {
	const layout = "Et*8|t*8|t*8|t*8L"
	log, costs := megatronLog(t), filepath.Join(t.TempDir(), "costs.json")
	e := says("costs", "--megatron-log", log, "--layout", layout, "--microbatches", "16", "-o", costs)
	for _, want := range []string{"embedding       1       0.500     0.000      0.500", "block.N      32      10.000    10.000     10.000", "head       1      14.000", "note: the first two of 5 blocks"} {
		if !strings.Contains(e.stdout+e.stderr, want) {
			t.Errorf("no %q in\n%s%s", want, e.stdout, e.stderr)
		}
	}
	e = says("layout", "--costs", costs, "--stages", "4", "--microbatches", "16", "--for", "megatron", "--layout", layout)
	if e.status != 0 || !strings.Contains(e.stdout, "1.049 times as fast") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	e = says("costs", "--megatron-log", log, "--layout", layout, "--microbatches", "16", "-o", costs)
	if e.status != exitUsage || !strings.Contains(e.stderr, "--force") {
		t.Errorf("status %d, %q", e.status, e.stderr)
	}
	if e = says("costs", "--megatron-log", log, "--layout", layout, "--microbatches", "16", "-o", "-"); !strings.HasPrefix(e.stdout, "{") || strings.Contains(e.stdout, "samples") {
		t.Errorf("%s", e.stdout)
	}
}

// TestCostsOfAnotherLayout: one sentence names the layout that does not fit, the stages and what to check.
func TestCostsOfAnotherLayout(t *testing.T) {
	log := megatronLog(t)
	for layout, want := range map[string]string{
		"Et*8|t*8|t*8|t*8L":  "",
		"Et*10|t*8|t*6|t*8L": "note: --layout Et*10|t*8|t*6|t*8L does not fit the log: beside the seconds of its layers stage 2 took +",
	} {
		e := says("costs", "--megatron-log", log, "--layout", layout, "--microbatches", "16", "-o", filepath.Join(t.TempDir(), "costs.json"))
		if e.status != exitDone || strings.Count(e.stderr, "does not fit") != strings.Count(want, "does not fit") || !strings.Contains(e.stderr, want) {
			t.Errorf("%s: status %d, %q, want %q", layout, e.status, e.stderr, want)
		}
	}
}

// TestCostsThatAreNotSeparated: dynmo layout does not place kinds apart that the log leaves open.
func TestCostsThatAreNotSeparated(t *testing.T) {
	folder := t.TempDir()
	log, costs := filepath.Join(folder, "run.log"), filepath.Join(folder, "costs.json")
	var b strings.Builder
	for n := range 4 {
		fmt.Fprintf(&b, " iteration %d/ 9 |\ntimes across ranks (ms):\n  forward-compute:\n     rank  0: 810.00\n     rank  1: 940.00\n  backward-compute:\n     rank  0: 1610.00\n     rank  1: 1880.00\n", n+1)
	}
	expect.OK(t, os.WriteFile(log, []byte(b.String()), 0o644))
	e := says("costs", "--megatron-log", log, "--layout", "Et*4|t*4L", "--microbatches", "20", "-o", costs)
	if e.status != 0 || !strings.Contains(e.stdout, "The layout does not separate block.N, embedding, head") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	e = says("layout", "--costs", costs, "--stages", "2", "--microbatches", "20", "--for", "megatron", "--layout", "Et*4|t*4L")
	if e.status != exitNothing || strings.Contains(e.stdout, "t*5") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
}

// TestCostsSaysWhatHasNoEffect: flags of the run that a source does not need.
func TestCostsSaysWhatHasNoEffect(t *testing.T) {
	folder := t.TempDir()
	table := filepath.Join(folder, "layers.csv")
	expect.OK(t, os.WriteFile(table, []byte("name,forward_ms,backward_ms\nembedding,1,2\nblock.0,1,2\nhead,1,2\n"), 0o644))
	for args, want := range map[string]string{
		"--csv " + table + " --order v":        "note: --order has no effect on --csv",
		"--csv " + table + " --microbatches 8": "note: --microbatches has no effect on --csv",
		"--csv " + table + " --stages 2":       "note: --stages has no effect on --csv",
		"--megatron-log " + megatronLog(t) + " --layout Et*8|t*8|t*8|t*8L --microbatches 16 --order v": "note: --order has no effect on --megatron-log",
	} {
		e := says(append([]string{"costs", "-o", filepath.Join(folder, "costs.json"), "--force"}, strings.Fields(args)...)...)
		if e.status != exitDone || !strings.Contains(e.stderr, want+"\n") {
			t.Errorf("%s: status %d, %q, want %q", args, e.status, e.stderr, want)
		}
	}
	if e := says("costs", "-o", filepath.Join(folder, "costs.json"), "--force", "--csv", table, "--layout", "EtL", "--stages", "1"); strings.Contains(e.stderr, "has no effect") {
		t.Errorf("with a layout: %q", e.stderr)
	}
}

func TestCostsRefuses(t *testing.T) {
	log, out := megatronLog(t), filepath.Join(t.TempDir(), "costs.json")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "0 sources, want one of --megatron-log, --torch-trace,"},
		{[]string{"--megatron-log", log, "--csv", log}, "2 sources"},
		{[]string{"--megatron-log", log}, "--layout: want that of the run"},
		{[]string{"--megatron-log", log, "--layout", "EtL"}, "--microbatches"},
		{[]string{"--megatron-log", log, "--layout", "EtL", "--microbatches", "-1"}, "--microbatches -1: want 0 to"},
		{[]string{"--megatron-log", "absent", "--layout", "EtL", "--microbatches", "1"}, "no such file"},
		{[]string{"--csv", t.TempDir()}, "a directory"},
	} {
		e := says(append([]string{"costs", "-o", out}, c.args...)...)
		if e.status != exitUsage || !strings.Contains(e.stderr, c.want) || strings.Count(e.stderr, "\n") != 1 {
			t.Errorf("%v: status %d, %q, want %q", c.args, e.status, e.stderr, c.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Fatalf("%v: left a file", c.args)
		}
	}
}
