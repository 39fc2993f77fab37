package main

import (
	"bytes"
	"strings"
	"testing"

	"dynmo/src/nodebench"
)

func TestFiguresInJSON(t *testing.T) {
	var lines bytes.Buffer
	if err := writeLines(&lines, []nodebench.Result{
		{Name: "spmm/forward_90", Value: 4.25, Unit: "ratio", Reach: 4, OK: true, Clock: "wall"},
		{Name: "spmm/sddmm_90", Value: 3.5, Unit: "ratio", Reach: 4, Clock: "wall"},
	}); err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"spmm/forward_90","value":4.25,"unit":"ratio","reach":4,"ok":true,"clock":"wall","wrong":0}
{"name":"spmm/sddmm_90","value":3.5,"unit":"ratio","reach":4,"ok":false,"clock":"wall","wrong":0}
`
	if lines.String() != want {
		t.Errorf("got\n%swant\n%s", lines.String(), want)
	}
}

func TestBenchRefusesBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "bench: what? see dynmo bench --help"},
		{"gem", `unknown command "gem" for "dynmo bench"`},
		{"gemm --threads 0", "--threads 0: want at least 1"},
		{"gemm --rounds 0", "--rounds 0: want at least 1"},
		{"gemm --clock sundial", "--clock sundial: want wall or virtual"},
		{"gemm --clock virtual --threads 2", "want --threads 1"},
		{"gemm 7", "unknown command"},
		{"spmm --percent 50,100", "--percent 100: want 0 to 99"},
		{"net --min 12", "--min 12: want a multiple of 8, at least 8"},
		{"net --max 32", "--max 32: want 64 (--min) to 1073741824"},
		{"net --clock virtual", "want --clock wall"},
		{"net --rounds 0", "--rounds 0: want at least 1"},
		{"spmm --tokens 0", "--tokens 0: want at least 1"},
		{"gpu --only matrix", "--only matrix: want some of copy, gemm, step"},
		{"gpu --threads 2", "--threads: has no effect"},
		{"gpu --clock virtual", "want --clock wall"},
		{"gpu --rounds 0", "--rounds 0: want at least 1"},
		{"schedule --clock virtual", "--clock: has no effect"},
		{"schedule --threads 2", "--threads: has no effect"},
		{"schedule --rounds 3", "--rounds: has no effect"},
	} {
		t.Run(test.args, func(t *testing.T) {
			says(append([]string{"bench"}, strings.Fields(test.args)...)...).refused(t, exitUsage, test.want)
		})
	}
}
