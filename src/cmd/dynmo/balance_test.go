package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"

	"github.com/spf13/cobra"
)

// balanceWith runs the command on a loads file and returns what it says and
// its exit status.
func balanceWith(t *testing.T, loads string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loads.json")
	expect.OK(t, os.WriteFile(file, []byte(loads), 0o600))
	root := &cobra.Command{Use: "dynmo", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(balanceCommand())
	var out, errs bytes.Buffer
	status = execute(root, append([]string{"balance", "--loads", file}, args...), &out, &errs)
	return out.String(), errs.String(), status
}

func TestBalanceCommandJSON(t *testing.T) {
	// The chain that DeepSpeed's max-min programme leaves at 5.
	const loads = `{"seconds": [1, 4, 2, 2]}`
	for _, tc := range []struct {
		balancer   string
		cuts       []int
		bottleneck float64
		optimal    bool
	}{
		{"partition", []int{0, 1, 2, 4}, 4, true},
		{"diffusion", []int{0, 1, 2, 4}, 4, true},
		{"uniform", []int{0, 2, 3, 4}, 5, false},
		{"diffusion-paper", nil, 4, false}, // layer 0 joins one of the 2s, as no cuts can
	} {
		out, errs, status := balanceWith(t, loads, "--stages", "3", "--balancer", tc.balancer, "--json")
		if status != exitDone {
			t.Fatalf("%s: status %d, %s", tc.balancer, status, errs)
		}
		var a answer
		expect.OK(t, json.Unmarshal([]byte(out), &a))
		if !slices.Equal(a.Cuts, tc.cuts) || a.Bottleneck != tc.bottleneck || a.Optimal != tc.optimal ||
			a.Optimum != 4 || a.LowerBound != 4 || *a.Gap != tc.bottleneck/4-1 || a.Decide < 0 {
			t.Errorf("%s: %s", tc.balancer, out)
		}
		if table, _, status := balanceWith(t, loads, "--stages", "3", "--balancer", tc.balancer); status != exitDone || !strings.Contains(table, "lower bound 4 s") {
			t.Errorf("%s: status %d, %s", tc.balancer, status, table)
		}
	}
}

// TestBalanceCommandPaperCuts wants cuts of the paper's diffusion where its
// layers happen to lie in order.
func TestBalanceCommandPaperCuts(t *testing.T) {
	out, errs, status := balanceWith(t, `{"seconds": [2, 2, 2, 2]}`, "--stages", "2", "--balancer", "diffusion-paper", "--json")
	var a answer
	if err := json.Unmarshal([]byte(out), &a); err != nil || status != exitDone {
		t.Fatalf("status %d, %s, %v", status, errs, err)
	}
	if !slices.Equal(a.Cuts, []int{0, 2, 4}) || a.Owner != nil || a.Bottleneck != 4 || !a.Optimal {
		t.Errorf("got %s", out)
	}
}

func TestBalanceCommandRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, loads string
		args        []string
		status      int
		want        string // in the error
	}{
		{"no stages", `{"seconds":[1]}`, nil, exitUsage, "stages"},
		{"0 stages", `{"seconds":[1]}`, []string{"--stages", "0"}, exitUsage, "loads.json: stages: 0"},
		{"more stages than layers", `{"seconds":[1]}`, []string{"--stages", "2"}, exitUsage, "loads.json: stages: 2"},
		{"negative", `{"seconds":[1,-1]}`, []string{"--stages", "2"}, exitUsage, "loads.json: seconds[1]: -1"},
		{"unknown balancer", `{"seconds":[1]}`, []string{"--stages", "1", "--balancer", "best"}, exitUsage, `"best"`},
		{"no memory", `{"seconds":[1,1],"bytes":[5,9],"capacity_bytes":7}`, []string{"--stages", "2"}, exitFailure, "layer 1 fits on no stage; on stage 0, the roomiest for it, 2 bytes are missing"},
		{"uniform does not fit", `{"seconds":[1,1,1],"bytes":[5,5,1],"capacity_bytes":7}`, []string{"--stages", "2", "--balancer", "uniform"}, exitFailure, "stage 0 lacks 3 bytes"},
	} {
		out, errs, status := balanceWith(t, tc.loads, tc.args...)
		if status != tc.status || !strings.Contains(errs, tc.want) || out != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want status %d and %q", tc.name, status, out, errs, tc.status, tc.want)
		}
	}
}
