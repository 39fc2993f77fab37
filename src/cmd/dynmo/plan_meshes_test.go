package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPlanMeshes: plan with the settings of a mesh gives the announced step time of that mesh, on
// measured costs. Both output forms agree.
func TestPlanMeshes(t *testing.T) {
	skipUnderShort(t)
	workbench(t, "")
	costsOf(t, "halves.json", 14)
	write(t, "network.toml", "ranks_per_node = 2\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e9\n"+
		"[between]\nlatency_seconds = 1e-5\nbandwidth_bytes = 1e8\n")
	for name, more := range map[string][]string{
		"blocks": {"--costs", "costs.json"},
		"halves": append(sets("model.grain=half", "balance.kind=uniform"), "--costs", "halves.json", "--network", "network.toml"),
		"memory": append(sets("balance.memory_limit_bytes=1200000"), "--costs", "costs.json"),
	} {
		args := slices.Concat([]string{"plan", "run.toml"}, sets("parallel.replicas=3", "parallel.microbatches=4"), more)
		asked := append(slices.Clone(args), "--meshes")
		a := decoded[meshesAnswer](t, asked...)
		if a.GPUs != 12 || a.Batch != 24 || a.Clock != "sim" || a.Costs != "sim" || len(a.Meshes) == 0 {
			t.Fatalf("%s: %+v", name, a)
		}
		if present := decoded[planAnswer](t, args...); present.Step != a.Present {
			t.Errorf("%s: CONFIG takes %v s, is said to take %v s", name, present.Step, a.Present)
		}
		text := said(t, asked...)
		narrow(t, text)
		measured := 0
		for _, m := range a.Meshes {
			if row := fmt.Sprintf("\n%d x %d ", m.Stages, m.Replicas); !strings.Contains(text, row) || !strings.Contains(text, m.Cause) {
				t.Errorf("%s: no %q, %q in\n%s", name, row, m.Cause, text)
			}
			if m.MadeUp {
				continue
			}
			measured++
			one := decoded[planAnswer](t, slices.Concat(args, sets(m.Sets...))...)
			if one.Step != m.Step || one.Exposed != m.Exposed || !slices.Equal(one.Cuts, m.Cuts) || one.Schedule != m.Schedule {
				t.Errorf("%s: %v: %v s, planned %v s", name, m.Sets, m.Step, one.Step)
			}
		}
		if measured == 0 && name != "memory" { // whole blocks do not fit into memory on any mesh
			t.Errorf("%s: no mesh on measured costs: %+v", name, a.Meshes)
		}
		if (len(a.Left) > 0) != strings.Contains(text, "\nleft out") || (name == "memory") && len(a.Left) == 0 {
			t.Errorf("%s: left out %+v in\n%s", name, a.Left, text)
		}
	}
}

// TestPlanMeshesRefuses: a request that no mesh can meet is one error.
func TestPlanMeshesRefuses(t *testing.T) {
	workbench(t, "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--gpus", "719", "--batch", "2880"}, "--gpus 719 --batch 2880: no mesh: 719x1: more stages than the 15 layers of the finest chain; " +
			"1x719: the batch is no multiple of replicas times parallel.microbatch_size, 1438 or more"},
		{[]string{"--batch", "7"}, "--gpus 4 --batch 7: no mesh: 1x4, 2x2, 4x1: the batch is no multiple of replicas times parallel.microbatch_size, 2 or more"},
		{sets("balance.memory_limit_bytes=1000"), "1x4, 2x2, 4x1: a stage needs "},
		{[]string{"--gpus", "-1"}, "--gpus -1 --batch 0: want 0 to 524288 ranks"},
		{[]string{"--csv", "s.csv"}, "--csv: has no effect beside --meshes"},
	} {
		says(slices.Concat([]string{"plan", "run.toml", "--costs", "costs.json", "--meshes"}, c.args)...).refused(t, exitUsage, c.want)
	}
	says("plan", "run.toml", "--costs", "costs.json", "--gpus", "4").refused(t, exitUsage, "--gpus: has no effect without --meshes")
}
