package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/lab/study"
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
		if !slices.IsSortedFunc(a.Meshes, func(a, b study.MeshRow) int { return cmp.Compare(a.Step, b.Step) }) || a.Memory != 0 {
			t.Errorf("%s: the steps are not in order, or a limit on memory is assumed:\n%s", name, text)
		}
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

// TestMemoryOfTheGPU: costs estimated for a GPU limit what plan --meshes advises to its memory, unless a limit is
// given. layout says if a stage needs more: trainers share out what it counts whole.
func TestMemoryOfTheGPU(t *testing.T) {
	workbench(t, "")
	costs := strings.Replace(read(t, "costs.json"), `"clock": "sim"`, `"clock": "estimated", "device": "h100"`, 1)
	write(t, "large.json", strings.ReplaceAll(costs, `"activations": `, `"activations": 3000000`)) // 3e10 bytes and more for each microbatch
	meshes := []string{"plan", "run.toml", "--costs", "large.json", "--meshes", "--gpus", "4", "--batch", "16"}
	layout := []string{"layout", "--costs", "large.json", "--stages", "4", "--microbatches", "4", "--for", "megatron"}
	if e := says(meshes...); e.status != exitUsage || !strings.Contains(e.stderr, "80000000000") && !strings.Contains(e.stderr, "80.0 GB") {
		t.Errorf("%v: status %d, %s", meshes, e.status, e.stderr)
	}
	if text := said(t, layout...); !strings.Contains(text, "and the GPU of the costs has 80.0 GB: --memory sets a limit.") {
		t.Errorf("no word on memory in\n%s", text)
	}
	expect.OK(t, os.WriteFile("small.json", []byte(costs), 0o600))
	meshes[3], layout[2] = "small.json", "small.json"
	const words = "\nmemory        at most 80 GB a GPU, as the GPU of the costs has; "
	if text := said(t, meshes...); !strings.Contains(text, words) {
		t.Errorf("no %q in\n%s", words, text)
	}
	for _, args := range [][]string{layout, append(meshes, sets("balance.memory_limit_bytes=90000000000")...)} {
		if text := said(t, args...); strings.Contains(text, "GPU of the costs") {
			t.Error(text)
		}
	}
}
