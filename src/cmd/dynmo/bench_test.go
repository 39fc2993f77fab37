package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"dynmo/src/device/cuda"
	"dynmo/src/expect"
	"dynmo/src/nodebench"
)

// TestBenchSaysWhere: every line names the machine, as a table and as JSON. A figure without a
// target has none.
func TestBenchSaysWhere(t *testing.T) {
	flags := benchFlags{machine: nodebench.Machine{CPU: "A CPU", Host: "node1"}}
	var table, lines bytes.Buffer
	c := &cobra.Command{}
	c.SetOut(&table)
	figures := []nodebench.Result{{Name: "spmm/forward_90", Value: 4.25, Unit: "ratio", OK: true, Clock: "wall"}}
	expect.OK(t, flags.write(c, figures))
	if !regexp.MustCompile(`(?m)^spmm/forward_90 .* A CPU$`).Match(table.Bytes()) {
		t.Errorf("no CPU in\n%s", &table)
	}
	flags.json = true
	c.SetOut(&lines)
	expect.OK(t, flags.write(c, figures))
	if line := lines.String(); strings.Contains(line, "reach") || !strings.Contains(line, `"cpu":"A CPU"`) {
		t.Error(line)
	}
}

func TestBenchRefusesBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "bench: what? see dynmo bench --help"},
		{"gem", `unknown command "gem" for "dynmo bench"`},
		{"gemm --threads 0", "--threads 0: want 1 to 1024"},
		{"gemm --rounds 9223372036854775806", "--rounds 9223372036854775806: want 1 to 1000000"},
		{"gemm --clock sundial", "--clock sundial: want wall or virtual"},
		{"gemm --clock virtual --threads 2", "want --threads 1"},
		{"gemm 7", "unknown command"},
		{"spmm --structure 2:4", "--structure 2:4: want unstructured or block32"},
		{"spmm --percent 50,100", "--percent 100: want 0 to 99"},
		{"net --min 12", "--min 12: want a multiple of 8, at least 8"},
		{"net --max 32", "--max 32: want 64 (--min) to 1073741824"},
		{"net --clock virtual", "want --clock wall"},
		{"net --rounds 0", "--rounds 0: want 1 to 1000000"},
		{"spmm --tokens 0", "--tokens 0: want 1 to 65536"},
		{"spmm --outputs 9223372036854775806", "--outputs 9223372036854775806: want 1 to 65536"},
		{"step --sequences 9223372036854775806", "--sequences 9223372036854775806: want 1 to 1024"},
		{"scale --steps 9223372036854775806", "--steps 9223372036854775806: want 1 to 1000000"},
		{"gpu --only matrix", "--only matrix: want some of copy, gemm, step"},
		{"gpu --threads 2", "--threads: has no effect"},
		{"gpu --clock virtual", "want --clock wall"},
		{"gpu --rounds 0", "--rounds 0: want 1 to 1000000"},
		{"schedule --clock virtual", "--clock: has no effect"},
		{"schedule --threads 2", "--threads: has no effect"},
		{"schedule --rounds 3", "--rounds: has no effect"},
	} {
		t.Run(test.args, func(t *testing.T) {
			says(append([]string{"bench"}, strings.Fields(test.args)...)...).refused(t, exitUsage, test.want)
		})
	}
}

// TestBenchGPUWithoutOne: without a GPU the command names the missing part.
func TestBenchGPUWithoutOne(t *testing.T) {
	if _, err := cuda.Probe(); err == nil || cuda.Built {
		t.Skip("this machine has a GPU: asking for it would replace the test")
	}
	says("bench", "gpu", "--quick").refused(t, exitUsage, `device.kind = "cuda": `)
}

// TestBenchSchedule: the tables of schedules and the JSON output have the same figures, and all
// figures reach their bounds.
func TestBenchSchedule(t *testing.T) {
	skipUnderShort(t)
	table := said(t, "bench", "schedule")
	for _, row := range []string{
		`(?m)^zb-h1 +16 +48 +15 +15 +159 +0\.0943 +EXACT$`,
		`(?m)^zb-h2 +8 +24 +0 +0 +79 +0\.0886 +EXACT$`,
		`(?m)^equal +8 +1 +8 +- +1\.217 +1\.000 +- .* 1\.000 +PASS$`,
		`(?m)^short_weight +16 +2 +32 .* 1\.000 +PASS$`,
	} {
		if !regexp.MustCompile(row).MatchString(table) {
			t.Errorf("no row %s in\n%s", row, table)
		}
	}
	if n := strings.Count(table, "PASS\n"); n != 60 {
		t.Errorf("%d figures are in reach, want 60, in\n%s", n, table)
	}
}
