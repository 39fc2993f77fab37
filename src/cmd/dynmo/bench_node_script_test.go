package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/nodebench/verdict"
)

// TestNodeBenchDrains runs jobs/node_bench.sbatch --drain with stand-ins for srun and scontrol. The stand-in
// for srun gives the records of its nodes, of the first measurement or of the second ("again").
func TestNodeBenchDrains(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../../jobs/node_bench.sbatch")
	expect.OK(t, err)
	dynmo, err := build()
	expect.OK(t, err)
	triad := func(node string, value float64) []verdict.Row {
		return []verdict.Row{{Node: node, Device: "host", Model: "M", Check: "triad", Value: value, Unit: "GB/s", Status: verdict.Measured}}
	}
	ended := func(node string, value float64) []verdict.Row {
		return append(triad(node, value), verdict.Row{Node: node, Status: verdict.Ended})
	}
	died := func(node string) []verdict.Row {
		return append(triad(node, 100), verdict.Row{Node: node, Device: "net", Check: "pair node1 node2", Status: verdict.Begun})
	}
	busy := ended("node2", 100)
	busy[0].Status, busy[0].Note = verdict.Busy, "others took 2 cores"
	for _, test := range []struct {
		name    string
		records map[string][]verdict.Row // by folder and node
		status  int
		drained string
	}{
		{"one node dies, and Slurm kills the others", map[string][]verdict.Row{
			"records/node1": died("node1"), "records/node2": died("node2"), "records/node3": died("node3"),
			"again/node1": ended("node1", 100), "again/node2": busy,
		}, 1, "update NodeName=node3 State=DRAIN Reason=dynmo: pair node1 node2: the process died in this check\n"},
		{"the program starts on no node", nil, 3, ""},
		{"a slow node", map[string][]verdict.Row{
			"records/node1": ended("node1", 100), "records/node2": ended("node2", 75.94), "records/node3": ended("node3", 100), "again/node2": ended("node2", 75),
		}, 1, "update NodeName=node2 State=DRAIN Reason=dynmo: triad 75.9 < 80 GB/s of the reference\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string) {
				path := filepath.Join(dir, name)
				expect.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
				expect.OK(t, os.WriteFile(path, []byte(text), 0o700))
			}
			write("reference.toml", "[[bound]]\nmodel = \"M\"\ncheck = \"triad\"\nleast = 80\nunit = \"GB/s\"\n")
			for at, rows := range test.records {
				var lines bytes.Buffer
				expect.OK(t, writeLines(&lines, rows))
				write("prepared/"+at+".0.jsonl", lines.String())
			}
			write("scontrol", `#!/bin/bash
if [ "$1" = update ]; then echo "$*" >>drained; else printf 'node%s\n' 1 2 3; fi
`)
			write("srun", `#!/bin/bash
while [ $# -gt 0 ]; do
	case $1 in
	--nodelist=*) nodes=${1#*=} ;;
	--records) folder=$2 ;;
	esac
	shift
done
[ "$nodes" != 'node[1-3]' ] || nodes='node1 node2 node3'
mkdir -p "$folder"
for node in $nodes; do
	cp "prepared/${folder##*/}/$node.0.jsonl" "$folder" || status=127
done 2>/dev/null
exit "${status:-0}"
`)
			cmd := exec.Command(script, "--drain", "--reference", "reference.toml")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DYNMO="+dynmo, "DYNMO_MPI=pmix",
				"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=node[1-3]", "SLURM_JOB_NUM_NODES=3")
			out, err := cmd.CombinedOutput()
			failed, _ := errors.AsType[*exec.ExitError](err)
			if failed == nil || failed.ExitCode() != test.status {
				t.Errorf("%v, want status %d\n%s", err, test.status, out)
			}
			drained, _ := os.ReadFile(filepath.Join(dir, "drained")) // absent if nothing was drained
			if string(drained) != test.drained {
				t.Errorf("drained %q, want %q\n%s", drained, test.drained, out)
			}
			if test.status == 3 && !strings.Contains(string(out), "No node answered (node1, node2, node3)") {
				t.Errorf("%s", out)
			}
		})
	}
}
