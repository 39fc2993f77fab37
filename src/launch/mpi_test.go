//go:build mpi

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/record"
	"dynmo/src/train"
)

// ranksVariable marks a process that mpirun started as a rank of
// overMPI; its value is a file with the tasks, a list in JSON.
const ranksVariable = "DYNMO_TEST_SETTINGS"

// task is a run: layers are scattered anew after every step.
type task struct {
	Config config.Config
	Stages map[int]int // by step: stages from then on, of any ranks
	Seed   uint64
}

// left is called on a rank that has left, while others train on.
var left = func() error { return nil }

// run trains on one rank. One that leaves waits for the end.
func (k task) run(world comm.Transport, corpus *data.Corpus, out *run) (train.Outcome, error) {
	if k.Stages == nil {
		return rankRun(k.Config, world, corpus, out, scatter(uint64(k.Config.Parallel.Stages)))
	}
	r, err := readyRank(k.Config, world, corpus, out)
	if err != nil {
		return train.Outcome{}, err
	}
	r.Balancer = &shrinking{&script{next: scatter(k.Seed)}, k.Config, k.Stages, k.Seed}
	o, err := r.Loop()
	if err != nil {
		return o, err
	}
	r.Close()
	if err = r.Leave(); err == nil && o.Left {
		err = left()
	}
	if err == nil && o.Left {
		err = await(r, o.Steps, Hooks{Stop: func() bool { return false }})
	}
	return o, err
}

// printed is a run as a rank prints it; JSON keeps every bit of a float64.
type printed struct {
	Losses, Norms []record.Float
	Hash          string
	Moves         int
}

const printedMark = "run: "

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) {
	if path := os.Getenv(ranksVariable); path != "" {
		if err := rankMain(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rankMain trains once for each of the tasks, in one MPI world, and on rank
// 0 prints each run.
func rankMain(path string) error {
	settings, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var list []task
	if err := json.Unmarshal(settings, &list); err != nil {
		return err
	}
	t, err := mpi.Start()
	if err != nil {
		return err
	}
	for _, k := range list {
		c := k.Config
		corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
		if err != nil {
			return err
		}
		world, err := t.Split(0, t.Rank())
		if err != nil {
			return err
		}
		out := &run{}
		o, err := k.run(world, corpus, out)
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

// needMPI returns the path of mpirun, without which the test is skipped.
func needMPI(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	return path
}

// TestKindsKeepLaw1MPI is law 1 of the kinds of change over real processes: some mixes on
// four ranks, with DYNMO_LONG=1 all of them on two, four and eight in every placement that
// fits.
func TestKindsKeepLaw1MPI(t *testing.T) {
	needMPI(t)
	cases, runs := make(map[int][]config.Config), make(map[int][]*run)
	for i, m := range mixes {
		for _, c := range m.forms(t, i, false) {
			var still *run
			for k, at := range placements() {
				c, fits := puts(c, at)
				ranks := c.Parallel.Stages * c.Parallel.Replicas
				if !fits || ranks < 2 || ranks > 8 || ranks&(ranks-1) != 0 || !long && (ranks != 4 || i%6 != 5 || k%4 != 2) {
					continue
				}
				if still == nil {
					one := c
					one.Parallel.Stages, one.Schedule.Kind = 1, "1f1b"
					still = goRun(t, one, nil)
				}
				cases[ranks], runs[ranks] = append(cases[ranks], c), append(runs[ranks], still)
			}
		}
	}
	for ranks, list := range cases {
		keptMoving(t, list, agreeOverMPI(t, ranks, list, runs[ranks]))
	}
}

// TestRandomShapesOfExpertsApartMPI is TestRandomShapesOfExpertsApart over real processes:
// with DYNMO_LONG=1 those of 150 draws that want four ranks, or eight.
func TestRandomShapesOfExpertsApartMPI(t *testing.T) {
	if needMPI(t); !long {
		t.Skip("with DYNMO_LONG=1")
	}
	cases, runs := make(map[int][]config.Config), make(map[int][]*run)
	for seed := range uint64(150) {
		c, _ := drawn(t, seed, 81, apart, drawApart)
		if ranks := c.Parallel.Stages * c.Parallel.Replicas; c.Parallel.Stages > 1 && (ranks == 4 || ranks == 8) {
			cases[ranks], runs[ranks] = append(cases[ranks], c), append(runs[ranks], goRun(t, onOne(c), nil))
		}
	}
	for ranks, list := range cases {
		agreeOverMPI(t, ranks, list, runs[ranks])
	}
}

// TestPlacementChangesNothingMPI is law 1 over real processes: the variants and
// schedules of TestPlacementChangesNothing on four MPI ranks.
func TestPlacementChangesNothingMPI(t *testing.T) {
	needMPI(t)
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
	propagating, behind := exiting(t, "exit"), unchanging(t)
	propagating.Parallel.Replicas = 2
	propagating.Assign("exit.propagate", true)
	spreading := spread(small(t))
	spreading.Model.Hidden, spreading.Model.Sequence, spreading.Dynamic.Kind = 64, 40, "moe" // messages that wait for their receiver
	for _, c := range []config.Config{propagating, behind, spreading, structured(t, "block32", "radix"), structured(t, "2:4", "gather")} {
		want = append(want, goRun(t, c, nil))
		c.Parallel.Stages, c.Schedule.Kind = 4/c.Parallel.Replicas, "zb-h1"
		list = append(list, c)
	}
	keptMoving(t, list, agreeOverMPI(t, 4, list, want))
}

// TestLeavingChangesNothingMPI is law 1 where ranks leave over real processes, which wait for
// the others then: some cases on four ranks, with DYNMO_LONG=1 all on four and six.
func TestLeavingChangesNothingMPI(t *testing.T) {
	needMPI(t)
	for ranks, grids := range map[int][]int{4: {1, 2}, 6: {2, 3}} { // replicas
		var tasks []task
		var want []*run
		for number := range departures {
			for i, replicas := range grids {
				if !long && (ranks != 4 || number%4 != 1+i) {
					continue
				}
				stages := ranks / replicas
				c := departing(t, number, []string{"zb-v", "1f1b", "list", "interleaved"}[number%4], replicas, []string{"stage-major", "replica-major"}[number%2])
				one := onOne(c)
				if c.Parallel.Stages = stages; c.Validate() != nil {
					continue // interleaved, of which microbatches are a multiple of the stages
				}
				want = append(want, goRun(t, one, nil))
				fewer := map[int]int{2: stages - 1, 6: 1}
				if c.Schedule.Kind == "interleaved" {
					fewer = map[int]int{2: 2, 6: 1}
				}
				tasks = append(tasks, task{c, fewer, uint64(number + i)})
			}
		}
		if len(tasks) > 0 {
			overMPI(t, ranks, tasks, want)
		}
	}
}

// keptMoving fails the test where layers did not move after most steps of a run.
func keptMoving(t *testing.T, list []config.Config, got []*run) {
	t.Helper()
	for i, c := range list {
		if c.Parallel.Stages > 1 && got[i].moves < c.Train.Steps/2 {
			t.Errorf("%s/%s: only %d of %d steps moved layers", c.Dynamic.Kind, variant(c), got[i].moves, c.Train.Steps)
		}
	}
}

// agreeOverMPI runs each of the settings on so many MPI ranks, layers scattered anew after
// every step, fails the test where one differs from the run that is wanted, and returns them.
func agreeOverMPI(t *testing.T, ranks int, list []config.Config, want []*run) (got []*run) {
	t.Helper()
	var tasks []task
	for _, c := range list {
		tasks = append(tasks, task{Config: c})
	}
	return overMPI(t, ranks, tasks, want)
}

// overMPI does so with tasks.
func overMPI(t *testing.T, ranks int, tasks []task, want []*run) (got []*run) {
	t.Helper()
	path := needMPI(t)
	settings, err := json.Marshal(tasks)
	expect.OK(t, err)
	file := filepath.Join(t.TempDir(), "settings.json")
	expect.OK(t, os.WriteFile(file, settings, 0o600))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-np", strconv.Itoa(ranks), "--oversubscribe", "--bind-to", "none", os.Args[0])
	cmd.Env = append(os.Environ(), ranksVariable+"="+file,
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_btl_vader_single_copy_mechanism=none")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
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
	for i, k := range tasks {
		if c, at := k.Config, got[i].difference(want[i]); at != "" {
			t.Errorf("%s/%s: differs from one stage at %s", c.Dynamic.Kind, variant(c), at)
		}
	}
	return got
}
