package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"dynmo/src/nodebench"
)

// TestBenchNet: messages and layers arrive unchanged, and have figures. Speeds are ignored, because
// they depend on the machine's other work.
func TestBenchNet(t *testing.T) {
	two := world{2}
	two.need(t)
	t.Parallel()
	e := two.run(t, t.TempDir(), "bench", "net", "--json", "--rounds", "1", "--max", "4096")
	if e.status != exitDone && e.status != 4 && !strings.Contains(strings.Join(e.errors(), "\n"), "figures are invalid or too low") {
		t.Errorf("status %d\n%s", e.status, e.stderr)
	}
	figures := map[string]bool{}
	for _, r := range decodedLines[nodebench.Result](t, e.stdout) {
		if figures[r.Name] || r.Wrong != 0 || r.Value <= 0 || r.Clock != "wall" {
			t.Errorf("%+v", r)
		}
		figures[r.Name] = true
	}
	for _, name := range []string{"net/message_ratio_64B", "net/message_c_4KiB", "net/migrate_ratio_dense", "net/migrate_ratio_csr"} {
		if !figures[name] {
			t.Errorf("no figure %s\n%s", name, e.stdout)
		}
	}
}

func TestBenchNetRefuses(t *testing.T) {
	t.Run("three ranks", func(t *testing.T) {
		three := world{3}
		three.need(t)
		t.Parallel()
		three.run(t, t.TempDir(), "bench", "net").refused(t, exitUsage, "bench net wants two ranks, has 3")
	})
	t.Run("one process", func(t *testing.T) {
		t.Parallel()
		alone.run(t, t.TempDir(), "bench", "net").refused(t, exitUsage, "bench net wants two ranks: mpirun -n 2")
	})
	t.Run("without MPI", func(t *testing.T) {
		t.Parallel()
		if strings.Contains(","+tags()+",", ",mpi,") {
			t.Skip("built with the tag mpi")
		}
		cmd := alone.command(t, t.TempDir(), "bench", "net")
		cmd.Env = append(cmd.Env, "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0")
		finish(t, cmd).refused(t, exitUsage, "built without MPI")
	})
}

// TestBenchNetOnABusyHost: no figure passes or fails if others used a host. A wrong one stays invalid.
func TestBenchNetOnABusyHost(t *testing.T) {
	for _, test := range []struct {
		name    string
		busy    []string // by rank
		wrong   int
		status  int
		verdict string
	}{
		{"idle hosts", []string{"", ""}, 0, exitFailure, "FAIL"},
		{"the other host is busy", []string{"", "b"}, 0, 4, "BUSY"},
		{"wrong on a busy host", []string{"a", ""}, 3, exitFailure, "INVALID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := benchFlags{clock: "virtual", json: true} // nothing warns
			f.machine.Threads = 1
			var out bytes.Buffer
			c := &cobra.Command{}
			c.SetOut(&out)
			results := []nodebench.Result{{Name: "net/message_ratio_1MiB", Value: 0.5, Unit: "ratio", Reach: 0.9, Wrong: test.wrong}}
			err := f.judgeNet(c, results, [][]byte{[]byte(test.busy[0]), []byte(test.busy[1])})
			if exitStatus(err) != test.status || !strings.Contains(out.String(), `"verdict":"`+test.verdict+`"`) {
				t.Errorf("%v, status %d, want %d\n%s, want %s", err, exitStatus(err), test.status, out.String(), test.verdict)
			}
		})
	}
}
