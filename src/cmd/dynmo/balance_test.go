package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// loadsFile returns a loads file.
func loadsFile(t *testing.T, loads string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loads.json")
	write(t, file, loads)
	return file
}

func TestBalanceCommandJSON(t *testing.T) {
	// DeepSpeed's max-min algorithm leaves this chain with a bottleneck of 5.
	file := loadsFile(t, `{"seconds": [1, 4, 2, 2]}`)
	for _, tc := range []struct {
		balancer   string
		cuts       []int
		bottleneck float64
		optimal    bool
	}{
		{"partition", []int{0, 1, 2, 4}, 4, true},
		{"diffusion", []int{0, 1, 2, 4}, 4, true},
		{"uniform", []int{0, 2, 3, 4}, 5, false},
		{"diffusion-paper", nil, 4, false}, // layer 0 joins a layer of cost 2, which contiguous cuts cannot do
	} {
		args := []string{"balance", "--loads", file, "--stages", "3", "--balancer", tc.balancer}
		a := decoded[answer](t, args...)
		if !slices.Equal(a.Cuts, tc.cuts) || a.Bottleneck != tc.bottleneck || a.Optimal != tc.optimal ||
			a.Optimum != 4 || a.LowerBound != 4 || *a.Gap != tc.bottleneck/4-1 || a.Decide < 0 {
			t.Errorf("%s: %+v", tc.balancer, a)
		}
		if table := said(t, args...); !strings.Contains(table, "lower bound 4 s") {
			t.Errorf("%s: %s", tc.balancer, table)
		}
	}
}

// TestBalanceCommandPaperCuts: the paper's diffusion returns cuts if its layers happen to be
// contiguous.
func TestBalanceCommandPaperCuts(t *testing.T) {
	file := loadsFile(t, `{"seconds": [2, 2, 2, 2]}`)
	a := decoded[answer](t, "balance", "--loads", file, "--stages", "2", "--balancer", "diffusion-paper")
	if !slices.Equal(a.Cuts, []int{0, 2, 4}) || a.Owner != nil || a.Bottleneck != 4 || !a.Optimal {
		t.Errorf("got %+v", a)
	}
}

func TestBalanceCommandRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, loads string
		args        []string
		status      int
		want        string // part of the error
	}{
		{"no stages", `{"seconds":[1]}`, nil, exitUsage, "stages"},
		{"0 stages", `{"seconds":[1]}`, []string{"--stages", "0"}, exitUsage, "loads.json: stages: 0"},
		{"more stages than layers", `{"seconds":[1]}`, []string{"--stages", "2"}, exitUsage, "loads.json: stages: 2"},
		{"negative", `{"seconds":[1,-1]}`, []string{"--stages", "2"}, exitUsage, "loads.json: seconds[1]: -1"},
		{"unknown balancer", `{"seconds":[1]}`, []string{"--stages", "1", "--balancer", "best"}, exitUsage, `"best"`},
		{"no memory", `{"seconds":[1,1],"bytes":[5,9],"capacity_bytes":7}`, []string{"--stages", "2"}, exitFailure, "layer 1 fits on no stage; on stage 0, the roomiest for it, 2 bytes are missing"},
		{"uniform does not fit", `{"seconds":[1,1,1],"bytes":[5,5,1],"capacity_bytes":7}`, []string{"--stages", "2", "--balancer", "uniform"}, exitFailure, "stage 0 lacks 3 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			says(append([]string{"balance", "--loads", loadsFile(t, tc.loads)}, tc.args...)...).refused(t, tc.status, tc.want)
		})
	}
}
