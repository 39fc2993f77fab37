//go:build mpi

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// ranksVariable marks a process that mpirun started as a rank of
// TestPlacementChangesNothingMPI; its value is the settings, a list in JSON.
const ranksVariable = "DYNMO_TEST_SETTINGS"

// printed is a run as a rank prints it; JSON keeps every bit of a float64.
type printed struct {
	Losses, Norms []record.Float
	Hash          string
	Moves         int
}

const printedMark = "run: "

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) {
	if settings := os.Getenv(ranksVariable); settings != "" {
		if err := rankMain(settings); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rankMain trains once for each of the settings, in one MPI world, and on rank
// 0 prints each run.
func rankMain(settings string) error {
	var list []config.Config
	if err := json.Unmarshal([]byte(settings), &list); err != nil {
		return err
	}
	t, err := mpi.Start()
	if err != nil {
		return err
	}
	for _, c := range list {
		corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
		if err != nil {
			return err
		}
		world, err := t.Split(0, t.Rank())
		if err != nil {
			return err
		}
		out := &run{}
		o, err := rankRun(c, world, corpus, out, scatter(uint64(c.Parallel.Stages)))
		if err != nil {
			return err
		}
		if t.Rank() == 0 {
			b, err := json.Marshal(printed{out.losses, out.norms, o.Hash, out.moves})
			if err != nil {
				return err
			}
			fmt.Printf("%s%s\n", printedMark, b)
		}
	}
	return mpi.Stop()
}

// TestPlacementChangesNothingMPI is law 1 over real processes: the variants and
// schedules of TestPlacementChangesNothing, and each kind of change, on four MPI
// ranks.
func TestPlacementChangesNothingMPI(t *testing.T) {
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	var list []config.Config
	var want []*run
	variants(t, func(c config.Config, number int) {
		still := goRun(t, c, nil)
		for k, schedule := range schedules {
			c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = 4/c.Parallel.Replicas, schedule.kind, schedule.chunks
			if !long && (number+k)%2 != 0 || schedule.chunks*c.Parallel.Stages > 10 {
				continue // the other half, or more chunks than blocks and their ends
			}
			list, want = append(list, c), append(want, still)
		}
	})
	exits := exiting(t, "exit")
	exits.Parallel.Replicas = 2
	propagating := exits
	propagating.Exit.Propagate = true
	for _, c := range []config.Config{sparse(t, "prune+attention"), mixed(t, "prune+mod", "predictor"), exits, propagating, plastic(t)} {
		want = append(want, goRun(t, c, nil))
		c.Parallel.Stages, c.Schedule.Kind = 4/c.Parallel.Replicas, "zb-h1"
		list = append(list, c)
	}
	settings, err := json.Marshal(list)
	expect.OK(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-np", "4", "--oversubscribe", "--bind-to", "none", os.Args[0])
	cmd.Env = append(os.Environ(), ranksVariable+"="+string(settings),
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_btl_vader_single_copy_mechanism=none")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var got []*run
	for line := range strings.Lines(string(text)) {
		if b, ok := strings.CutPrefix(line, printedMark); ok {
			var p printed
			expect.OK(t, json.Unmarshal([]byte(b), &p))
			got = append(got, &run{losses: p.Losses, norms: p.Norms, hash: p.Hash, moves: p.Moves})
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d runs of %d were printed\n%s", len(got), len(want), text)
	}
	for i, c := range list {
		name := variant(c)
		if got[i].moves < c.Train.Steps/2 {
			t.Errorf("%s: only %d of %d steps moved layers", name, got[i].moves, c.Train.Steps)
		}
		if at := got[i].difference(want[i]); at != "" {
			t.Errorf("%s: differs from one stage at %s", name, at)
		}
	}
}
