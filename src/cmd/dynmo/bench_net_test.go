package main

import (
	"strings"
	"testing"

	"dynmo/src/nodebench"
)

// TestBenchNet: messages and layers arrive unchanged, and have figures. Speeds are ignored, because
// they depend on the machine's other work.
func TestBenchNet(t *testing.T) {
	two := world{2}
	two.need(t)
	t.Parallel()
	e := two.run(t, t.TempDir(), "bench", "net", "--json", "--rounds", "1", "--max", "4096")
	if e.status != exitDone && !strings.Contains(strings.Join(e.errors(), "\n"), "figures are invalid or too low") {
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
