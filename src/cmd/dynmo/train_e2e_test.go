package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/kernel/cpu"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// settings describe a run that takes milliseconds: 8 layers on four stages.
const settings = `[run]
clock = "virtual"
[model]
blocks = 6
hidden = 32
heads = 2
sequence = 16
[data]
path = "text.txt"
[parallel]
stages = 4
[train]
steps = 12
hash = true
`

// folder returns a new folder with a corpus, text.txt, and run.toml: settings with `more` appended.
func folder(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	text := strings.Repeat("the quick brown fox jumps over the lazy dog; ", 200)
	for name, contents := range map[string]string{"text.txt": text, "empty.txt": "", "short.txt": text[:16], "run.toml": settings + more} {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(contents), 0o600))
	}
	return dir
}

// sets puts --set before every setting.
func sets(list ...string) []string {
	var args []string
	for _, set := range list {
		args = append(args, "--set", set)
	}
	return args
}

// training returns the arguments that train with run.toml.
func training(more ...string) []string { return append([]string{"train", "run.toml"}, more...) }

// metrics reads the steps of a run; every line is whole.
func metrics(t *testing.T, run string) []record.Metrics {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, record.MetricsFile))
	expect.OK(t, err)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Errorf("%s ends in half a line", record.MetricsFile)
	}
	list := decodedLines[record.Metrics](t, string(text))
	for i, m := range list {
		if m.Step != i {
			t.Fatalf("line %d is of step %d", i+1, m.Step)
		}
	}
	return list
}

// TestIterations: iteration n of the log is the line of step n - 1 in the metrics, and a checkpoint has the
// number of its iteration.
func TestIterations(t *testing.T) {
	t.Parallel()
	dir := folder(t, "log_every = 1\n")
	e := alone.run(t, dir, training("--run-dir", "run")...)
	for _, m := range metrics(t, filepath.Join(dir, "run")) {
		line := regexp.MustCompile(fmt.Sprintf(`iteration +%d/ +12 \|.* lm loss: %s \|`, record.Iteration(m.Step), regexp.QuoteMeta(fmt.Sprintf("%.6E", m.Loss))))
		if !line.MatchString(e.stderr) {
			t.Errorf("step %d: no line %s in\n%s", m.Step, line, e.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "run", "ckpt", "step_00000012")); err != nil {
		t.Error(err)
	}
}

func TestTrainRefusesSettings(t *testing.T) {
	t.Parallel()
	type refusal struct {
		name, more string
		args       []string
		want       []string
	}
	everywhere := []refusal{
		{"unknown key", "stpes = 3\n", training(), []string{"run.toml:15: ", "train.stpes", "nearest is train.steps"}},
		{"no such file", "", []string{"train", "absent.toml"}, []string{"absent.toml"}},
		{"unknown flag", "", training("--sett", "train.steps=1"), []string{"--sett"}},
	}
	for _, c := range everywhere {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w world) { w.run(t, folder(t, c.more), c.args...).refused(t, exitUsage, c.want...) })
		})
	}
	for _, c := range []refusal{
		{"unknown table", "[trian]\nsteps = 1\n", training(), []string{"run.toml:16: ", "trian.steps", "nearest is train.steps"}},
		{"wrong type", "log_every = \"often\"\n", training(), []string{"run.toml:15: ", "train.log_every", `"often"`, "wanted an integer"}},
		{"out of range", "log_every = 0\n", training(), []string{"run.toml:15: ", "train.log_every = 0", "wanted"}},
		{"syntax", "log_every = = 1\n", training(), []string{"run.toml:15: "}},
		{"unknown key set", "", training(sets("model.hiden=3")...), []string{"--set", "model.hiden", "nearest is model.hidden"}},
		{"wrong type set", "", training(sets("model.hidden=wide")...), []string{"--set", "model.hidden", `"wide"`, "wanted an integer"}},
		{"no value set", "", training(sets("model.hidden")...), []string{"--set model.hidden", "table.key=value"}},
		{"more stages than layers", "", training(sets("parallel.stages=9")...), []string{"parallel.stages = 9", "8 layers"}},
		{"no file given", "", []string{"train"}, []string{"1 arg"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone.run(t, folder(t, c.more), c.args...).refused(t, exitUsage, c.want...)
		})
	}
}

func TestTrainRefusesCorpus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, set string
		want      []string
	}{
		{"missing", "data.path=absent.txt", []string{`data.path = "absent.txt"`, "no such file"}},
		{"empty", "data.path=empty.txt", []string{`data.path = "empty.txt"`, "at least 17 bytes", "found 0 bytes"}},
		{"shorter than a sequence", "data.path=short.txt", []string{`data.path = "short.txt"`, "at least 17 bytes", "16 bytes"}},
		{"no validation data", "data.validation=absent.txt", []string{`data.validation = "absent.txt"`, "no such file"}},
		{"validation data shorter than a sequence", "data.validation=short.txt", []string{`data.validation = "short.txt"`, "at least 17 bytes", "16 bytes"}},
		{"little held out", "data.validation=1e-6", []string{"data.validation = 1e-06", "at least 17 tokens", "0 are held out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w world) {
				expect.NewFault(t, "F28", "")
				w.run(t, folder(t, ""), training(sets(c.set)...)...).refused(t, exitUsage, c.want...)
			})
		})
	}
}

// TestTrainRefusesWorlds starts ranks that do not fit together. Only the two ends of the pipeline
// read the corpus. If one of them lacks it, rank 0 reports which.
func TestTrainRefusesWorlds(t *testing.T) {
	four.need(t)
	t.Parallel()
	program, err := build()
	expect.OK(t, err)
	dir := folder(t, "")
	expect.OK(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	for name, kind := range map[string]schedule.Kind{"order.csv": schedule.Kind1F1B, "other/order.csv": schedule.KindGPipe} {
		order, err := schedule.New(kind, 4, 1, 4)
		expect.OK(t, err)
		f, err := os.Create(filepath.Join(dir, name))
		expect.OK(t, err)
		expect.OK(t, schedule.WriteCSV(f, order))
		expect.OK(t, f.Close())
	}
	for _, c := range []struct {
		name  string
		ranks int
		odd   int    // the rank that differs
		how   string // commands of that rank's shell
		want  []string
	}{
		{"three ranks for 2 x 2", 3, -1, "", []string{"parallel.stages 2 x parallel.replicas 2 needs 4 ranks", "world has 3"}},
		{"another seed on rank 2", 4, 2, `set -- "$@" --set run.seed=3`, []string{"rank 2 has another configuration than rank 0"}},
		{"unknown key on rank 2", 4, 2, `set -- "$@" --set model.hiden=3`, []string{"--set", "model.hiden"}},
		{"another schedule on rank 2", 4, 2, "cd other", []string{"rank 2 (host ", "schedule.file holds other data than on rank 0"}},
		{"no corpus on rank 3", 4, 3, "cd /", []string{"rank 3 (host ", `data.path = "text.txt"`, "no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.NewFault(t, "F24", "")
			t.Parallel()
			args := []string{program, "train", filepath.Join(dir, "run.toml")}
			if c.how == "cd other" {
				args = append(args, sets("schedule.kind=file", "schedule.file=order.csv")...)
			}
			if c.ranks == 3 {
				args = append(args, sets("parallel.stages=2", "parallel.replicas=2")...)
			}
			finish(t, inWorld(t, dir, differing(c.ranks, c.odd, c.how, args...)...)).refused(t, exitUsage, c.want...)
		})
	}
}

// differing returns the command line of ranks. Rank odd runs the commands of how first, which may
// change the arguments of that rank. (`mpirun A : B` of Open MPI 5.0.7 ends with a crash: ompi issue 13303.)
func differing(ranks, odd int, how string, line ...string) []string {
	script := fmt.Sprintf(`case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in %d) %s ;; esac; %s`, odd, cmp.Or(how, ":"), around)
	return append([]string{"mpirun", "-np", strconv.Itoa(ranks), "sh", "-c", script, "sh"}, line...)
}

// TestTrainStartDeadline: a rank that never begins ends the start of the others. MPI itself would
// not end it.
func TestTrainStartDeadline(t *testing.T) {
	four.need(t)
	t.Parallel()
	program, err := build()
	expect.OK(t, err)
	dir := folder(t, "")
	line := differing(4, 3, "kill -STOP $$", append([]string{program}, training(append(sets("comm.start_seconds=3"), "--run-dir", "run")...)...)...)
	finish(t, inWorld(t, dir, line...)).refused(t, exitFailure, "rank 0 (host ", "start: the ranks did not all begin in 3s: rank 3 (pid ", ") is stopped")
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("run directory: %v, want none", err)
	}
}

// TestTrainRefusesToBeAlone: a launcher started several ranks, but each rank is alone in its world.
func TestTrainRefusesToBeAlone(t *testing.T) {
	expect.NewFault(t, "F24", "")
	cmd := alone.command(t, folder(t, ""), training()...)
	cmd.Env = append(cmd.Env, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=4")
	want := "without MPI"
	if strings.Contains(tags(), "mpi") {
		want = "SLURM_STEP_NUM_TASKS=4"
	}
	finish(t, cmd).refused(t, exitUsage, "mpi: ", want)
}

func TestTrainRefusesMemoryLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w world) {
		e := w.run(t, folder(t, ""), training(sets("balance.memory_limit_bytes=1000")...)...)
		e.refused(t, exitUsage, "memory", "layer 0 (embedding)", "bytes are missing")
	})
}

func TestTrainRefusesRunDirectory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w world) {
		dir := folder(t, "")
		if e := w.run(t, dir, training("--run-dir", "run")...); e.status != exitDone {
			t.Fatalf("status %d: %s", e.status, e.stderr)
		}
		before := metrics(t, filepath.Join(dir, "run"))
		w.run(t, dir, training("--run-dir", "run")...).refused(t, exitUsage, "rank 0 (host ", "run directory run", "a run already lies there")
		if after := metrics(t, filepath.Join(dir, "run")); len(after) != len(before) {
			t.Errorf("%d steps of the first run, %d after the second", len(before), len(after))
		}
	})
	t.Run("below a file", func(t *testing.T) {
		alone.run(t, folder(t, ""), training("--run-dir", "text.txt/run")...).refused(t, exitUsage, "text.txt")
	})
}

// TestTrainLeavesNothing: a run that cannot start leaves no run directory.
func TestTrainLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		sets []string
		want []string
	}{
		{"weights", sets("model.weights=absent.safetensors"), []string{`model.weights = "absent.safetensors"`, "no such file"}},
		{"schedule", sets("schedule.kind=file", "schedule.file=absent.csv"), []string{"schedule.file", "absent.csv", "no such file"}},
		{"layout", sets("balance.kind=layout", "balance.layout=Et|tL"), []string{"balance.layout"}},
		{"ranks", sets("parallel.replicas=2000"), []string{"parallel.stages 4 x parallel.replicas 2000", "at most 4096 ranks in one process"}},
		{"memory", sets("model.vocab=16777216", "model.hidden=65536"), []string{"memory: ranks on host ", "(4) need ", " GiB are available (", "model.vocab"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, "")
			alone.run(t, dir, training(append(c.sets, "--run-dir", "run")...)...).refused(t, exitUsage, c.want...)
			if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
				t.Errorf("run directory: %v, want none", err)
			}
		})
	}
}

// TestTrainNaN: a learning rate of 1e30 leaves every weight finite, but not the next loss. The step
// that ends a run is among its records.
func TestTrainNaN(t *testing.T) {
	expect.NewFault(t, "F08", "")
	t.Parallel()
	diverge := sets("optimizer.lr=1e30", "optimizer.warmup=0")
	recorded := func(t *testing.T, dir string, n int) {
		t.Helper()
		list := metrics(t, filepath.Join(dir, "run"))
		if len(list) != n {
			t.Errorf("%d steps are recorded, want %d", len(list), n)
		}
		for _, m := range list {
			if m.Skipped != (m.Step > 0) || math.IsNaN(float64(m.Loss)) != m.Skipped {
				t.Errorf("step %d: skipped is %v, loss %v", m.Step, m.Skipped, m.Loss)
			}
		}
	}
	each(t, func(t *testing.T, w world) {
		dir := folder(t, "")
		e := w.run(t, dir, training(append(diverge, "--run-dir", "run")...)...)
		e.refused(t, exitDiverged, "step 1: the loss is NaN (train.on_nan = \"stop\"): begin a new run with a lower optimizer.lr, ", "--resume --set train.on_nan=skip")
		if strings.Contains(e.stderr, "to resume: ") {
			t.Errorf("there is nothing to resume: %s", e.stderr)
		}
		recorded(t, dir, 2)
		if s, err := verdict.ReadSummary(filepath.Join(dir, "run")); err != nil || s == nil || s.Status != verdict.Diverged {
			t.Errorf("summary %+v (%v)", s, err)
		}
	})
	t.Run("with a checkpoint", func(t *testing.T) {
		e := alone.run(t, folder(t, ""), training(append(diverge, "--set", "checkpoint.every=1", "--run-dir", "run")...)...)
		if line := regexp.MustCompile(`\nto resume: cd \S+ && \S+ train run\.toml .* --set train\.on_nan=skip --run-dir run --resume\n`); e.status != exitDiverged || !line.MatchString(e.stderr) {
			t.Errorf("status %d, want a line that matches %v: %s", e.status, line, e.stderr)
		}
	})
	t.Run("ranks are parked", func(t *testing.T) {
		four.need(t)
		dir := folder(t, "")
		slowly := sets("optimizer.lr=24", "optimizer.min_lr=0", "optimizer.warmup=0", "train.steps=600")
		four.run(t, dir, training(slices.Concat(leaving, slowly, []string{"--run-dir", "run"})...)...).refused(t, exitDiverged, ": the gradient norm is ", ", though the loss is ")
		list := metrics(t, filepath.Join(dir, "run"))
		if last := list[len(list)-1]; last.Ranks != 2 {
			t.Errorf("step %d has %d ranks, want 2: none was parked", last.Step, last.Ranks)
		}
	})
	t.Run("skip too often", func(t *testing.T) {
		dir := folder(t, "on_nan = \"skip\"\nnan_limit = 3\n")
		e := alone.run(t, dir, training(append(diverge, "--set", "checkpoint.every=3", "--run-dir", "run")...)...)
		e.refused(t, exitDiverged, "step 3: the loss is NaN (train.nan_limit = 3 steps in a row were skipped): begin a new run")
		if want := "run directory run: steps 0 to 3 in "; !strings.Contains(e.stderr, want) {
			t.Errorf("no %q: %s", want, e.stderr)
		}
		recorded(t, dir, 4)
		if _, err := os.Stat(filepath.Join(dir, "run", "ckpt", "step_00000003", "manifest.json")); err != nil {
			t.Errorf("the checkpoint in progress is not complete: %v", err)
		}
	})
	each(t, func(t *testing.T, w world) {
		dir := folder(t, "on_nan = \"skip\"\nnan_limit = 12\n")
		e := w.run(t, dir, training(append(diverge, "--run-dir", "run")...)...)
		if e.status != exitDone || len(e.errors()) > 0 {
			t.Fatalf("status %d: %s", e.status, e.stderr)
		}
		recorded(t, dir, 12)
		if want := "11 of 12 steps had no update, since the loss or the gradient was not finite: "; strings.Count(e.stderr, want) != 1 {
			t.Errorf("no %q: %s", want, e.stderr)
		}
		if s, err := verdict.ReadSummary(filepath.Join(dir, "run")); err != nil || s == nil || s.Skipped != 11 || (s.Peak != nil) != cpu.Built || strings.Contains(e.stderr, "share of sgemm: ") != cpu.Built {
			t.Errorf("summary %+v (%v)\n%s", s, err, e.stderr)
		}
		// The weights are those after the one good step, to the bit.
		one := alone.run(t, dir, training(append(diverge, sets("train.steps=1")...)...)...)
		if a, b := finalWeights(t, e), finalWeights(t, one); a != b {
			t.Errorf("weights %s, %s after the step before", a, b)
		}
	})
}

// outcome matches the last line of a run.
var outcome = regexp.MustCompile(`(?m)^(\d+) steps, loss (\S+), weights ([0-9a-f]{64})$`)

// finalWeights returns the hash of a run's final weights.
func finalWeights(t *testing.T, e ended) string {
	t.Helper()
	m := outcome.FindStringSubmatch(e.stdout)
	if m == nil {
		t.Fatalf("stdout %q, stderr %s", e.stdout, e.stderr)
	}
	return m[3]
}

// TestTrainPlacementChangesNothing is law 1 as a user sees it. It runs one stage; four stages with
// two balancers that move layers; goroutines and processes; the head's slices together and on all
// stages; and the same run twice. The losses of every step and the last line of output are the same
// bytes.
func TestTrainPlacementChangesNothing(t *testing.T) {
	dir := folder(t, `[balance]
by = "param"
every = "2"
[dynamic]
kind = "prune"
[prune]
start = 2
every = 2
times = 4
`)
	losses := regexp.MustCompile(`"loss":[^,]+,"grad_norm":[^,]+,`)
	var first, curve string
	for _, c := range []struct {
		name  string
		w     world
		sets  []string
		moves bool
	}{
		{"one stage", alone, sets("parallel.stages=1"), false},
		{"one stage again", alone, sets("parallel.stages=1"), false},
		{"goroutines", alone, sets("balance.kind=partition"), true},
		{"mpirun", four, sets("balance.kind=diffusion"), true},
		{"slices everywhere", four, sets("balance.kind=regex", "balance.regex=head"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.w.need(t)
			expect.NewFault(t, "F23", "")
			run := strings.ReplaceAll(c.name, " ", "-")
			e := c.w.run(t, dir, training(append(c.sets, "--set", "model.init=depth-scaled", "--set", "model.head_shards=4",
				"--run-dir", run)...)...)
			if e.status != exitDone || len(e.errors()) > 0 {
				t.Fatalf("status %d: %s", e.status, e.stderr)
			}
			finalWeights(t, e)
			text := read(t, filepath.Join(dir, run, record.MetricsFile))
			got := strings.Join(losses.FindAllString(text, -1), "\n")
			if n := strings.Count(got, "\n") + 1; n != 12 {
				t.Errorf("%d losses, want 12", n)
			}
			if first == "" {
				first, curve = e.stdout, got
			}
			if e.stdout != first || got != curve {
				t.Errorf("ends with %q and losses\n%s\nwant %q and\n%s", e.stdout, got, first, curve)
			}
			for _, m := range metrics(t, filepath.Join(dir, run)) {
				if c.w == four && !resident(m) {
					t.Errorf("step %d: resident memory %v, accounted for %v", m.Step, m.ResidentPerStage, m.BytesPerStage)
				}
				if c.w != four && len(m.BytesPerStage) > 1 && m.ResidentPerStage != nil {
					t.Errorf("step %d: resident memory of stages that share a process", m.Step)
				}
			}
			events := read(t, filepath.Join(dir, run, record.EventsFile))
			if moved := strings.Contains(events, `"kind":"migrate"`); moved != c.moves {
				t.Errorf("layers moved: %v, want %v", moved, c.moves)
			}
		})
	}
}

// resident reports whether the resident memory of four stages is known. On the stage with the
// largest estimate it must be at least half of that estimate, as far as the system counts. Each
// processor reports its pages by the batch, which the other stages do not even fill.
func resident(m record.Metrics) bool {
	if len(m.ResidentPerStage) != 4 {
		return false
	}
	const untold = 256 << 10 // uncounted pages of two processors, in bytes
	most := slices.Max(m.BytesPerStage)
	return m.ResidentPerStage[slices.Index(m.BytesPerStage, most)]+untold >= most/2
}

// TestTrainRanks: a job script reads the number of ranks from the settings, which are checked
// first.
func TestTrainRanks(t *testing.T) {
	dir := folder(t, "")
	e := alone.run(t, dir, training(append(sets("parallel.stages=2", "parallel.replicas=2"), "--ranks", "--run-dir", "run")...)...)
	if want := "ranks 4 stages 2 replicas 2 device cpu\n"; e.status != exitDone || e.stdout != want {
		t.Errorf("status %d, stdout %q, want %q", e.status, e.stdout, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("run directory: %v, want none", err)
	}
}
