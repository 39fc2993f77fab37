//go:build mpi

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// ranksVariable marks a process that mpirun started as a rank for overMPI. Its value is a file with
// a JSON list of tasks.
const ranksVariable = "DYNMO_TEST_SETTINGS"

// task describes a run whose layers are scattered anew after every step.
type task struct {
	Config config.Config
	Stages map[int]int // by step: number of stages from the step on, on any ranks
	Seed   uint64
}

// left is called on a rank that has left, while other ranks train.
var left = func() error { return nil }

// run trains on one rank. A rank that leaves waits for the end.
func (k task) run(world comm.Transport, corpus *data.Corpus, out *run) (train.Outcome, error) {
	r, err := newRank(k.Config, world, Hooks{
		Stop:  func() bool { return false },
		Begin: func(World) (record.Observer, error) { return out, nil },
	}, func() (*data.Corpus, error) { return corpus, nil })
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

// printed is a run in the form that a rank prints; JSON keeps every bit of a float64.
type printed struct {
	Losses, Norms, Validation []record.Float
	Hash                      string
	Moves                     int
}

const printedMark = "run: "

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) {
	if path := os.Getenv(ranksVariable); path != "" {
		if err := rankMain(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		mpi.Exit(0)
	}
	os.Exit(m.Run())
}

// rankMain trains once for each task, in one MPI world. Rank 0 prints each run.
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
			b, err := json.Marshal(printed{out.losses, out.norms, out.validation, o.Hash, out.moves})
			if err != nil {
				return err
			}
			fmt.Printf("%s%s\n", printedMark, b)
		}
	}
	return mpi.Stop()
}

// needMPI returns the path of mpirun. Without mpirun it skips the test.
func needMPI(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	return path
}

// TestLawsMPI is law 1 over four real processes. It runs the first row under every kind of
// schedule, and rows whose ranks exchange more than activations. It runs rows whose ranks leave and
// then wait for the others. With DYNMO_LONG=1 it runs every row, and drawn shapes, on two, four,
// six and eight processes.
func TestLawsMPI(t *testing.T) {
	needMPI(t)
	tasks, want := make(map[int][]task), make(map[int][]*run)
	add := func(c config.Config, stages map[int]int, seed uint64, still *run) {
		ranks := c.Parallel.Stages * c.Parallel.Replicas
		tasks[ranks], want[ranks] = append(tasks[ranks], task{c, stages, seed}), append(want[ranks], still)
	}
	for i, r := range rows {
		for v := range variants {
			first := i == 0 && (v == 1 || v == 2)
			some := slices.Contains([]string{"none", "prune to blocks", "exit, propagated", "freeze, attention", "most kinds", "groups, exit", "spread, mod", "rounded sums"}, r.name) && v == 3
			if !long && !first && !some {
				continue
			}
			c := r.settings(t, v)
			if r.name == "spread, mod" {
				c.Model.Hidden, c.Model.Sequence = 64, 40 // messages that wait for their receiver
			}
			var still *run
			for k, p := range places {
				c, fits := p.in(c)
				ranks := c.Parallel.Stages * c.Parallel.Replicas
				if !fits || ranks < 2 || ranks > 8 || ranks%2 == 1 || !long && (ranks != 4 || some && p.kind != "zb-h1") {
					continue
				}
				if still == nil {
					still = goRun(t, onOne(c), nil)
				}
				if add(c, nil, uint64(k), still); c.Parallel.Stages > 2 && (long || first && v == 2 && p.kind == "zb-v") {
					add(c, map[int]int{2: 2, 6: 1}, uint64(k), still)
				}
			}
			if c.Parallel.Stages = 2; some && c.Parallel.Replicas == 2 {
				add(c, map[int]int{2: 1}, uint64(i), still)
			}
		}
	}
	for seed := range uint64(150) {
		if _, c := drawn(t, seed); long && c.Parallel.Stages > 1 && slices.Contains([]int{4, 8}, c.Parallel.Stages*c.Parallel.Replicas) {
			add(c, nil, seed, goRun(t, onOne(c), nil))
		}
	}
	for ranks, list := range tasks {
		for i, got := range overMPI(t, ranks, list, want[ranks]) {
			if c := list[i].Config; got.moves < c.Train.Steps/2 && c.Parallel.Stages > 1 && list[i].Stages == nil && c.Model.Sequence > 9 {
				t.Errorf("%s: only %d of %d steps moved layers", title(c), got.moves, c.Train.Steps)
			}
		}
	}
}

// overMPI runs tasks on MPI ranks and returns their runs. It fails the test if a run differs from
// the wanted one.
func overMPI(t *testing.T, ranks int, tasks []task, want []*run) (got []*run) {
	t.Helper()
	path := needMPI(t)
	settings, err := json.Marshal(tasks)
	expect.OK(t, err)
	file := filepath.Join(t.TempDir(), "settings.json")
	expect.OK(t, os.WriteFile(file, settings, 0o600))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-np", strconv.Itoa(ranks), os.Args[0])
	cmd.Env = append(append(os.Environ(), expect.Launcher()...), ranksVariable+"="+file)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for line := range strings.Lines(string(text)) {
		if b, ok := strings.CutPrefix(line, printedMark); ok {
			var p printed
			expect.OK(t, json.Unmarshal([]byte(b), &p))
			got = append(got, &run{losses: p.Losses, norms: p.Norms, validation: p.Validation, hash: p.Hash, moves: p.Moves})
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d runs of %d were printed\n%s", len(got), len(want), text)
	}
	for i, k := range tasks {
		if c, at := k.Config, got[i].difference(want[i]); at != "" {
			t.Errorf("%s: differs from one stage at %s", title(c), at)
		}
	}
	return got
}
