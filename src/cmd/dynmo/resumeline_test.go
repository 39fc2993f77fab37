package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

func TestResumeCommand(t *testing.T) {
	c := config.Default()
	c.Parallel.Stages, c.Parallel.Replicas = 2, 3
	again := append([]string{"bin/dynmo", "train", "run.toml"}, setWords([]string{"run.name=my run"})...)
	t.Chdir(expect.Tree(t, map[string]string{"run.toml": ""}))
	const want = "bin/dynmo train run.toml --set 'run.name=my run' --run-dir runs/a --resume"
	for _, launcher := range []struct {
		prefix string
		set    []string
		lines  []string // of ancestors
	}{
		{"", nil, []string{"mpirun -np 4 other"}},
		{"mpirun -n 6 ", []string{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_PROCID"}, nil}, // in a Slurm job
		{"mpirun -n 6 ", []string{"PMI_RANK", "PMI_SIZE"}, nil},                              // MPICH
		{"srun --mpi=pmix -n 6 ", []string{"SLURM_PROCID", "PMIX_RANK"}, []string{"mpirun -np 6 bin/dynmo train run.toml"}},
		{"srun --mpi=pmi2 -n 6 ", []string{"SLURM_PROCID", "PMI_RANK"}, nil},
		{"mpirun --allow-run-as-root --oversubscribe -np 6 ", []string{"OMPI_COMM_WORLD_SIZE"}, []string{"mpirun --allow-run-as-root --oversubscribe -np 6 bin/dynmo train run.toml", "bash"}},
		{"/opt/bin/mpiexec.hydra -n 6 ", []string{"PMI_RANK"}, []string{"/opt/bin/hydra_pmi_proxy --rank 0", "/opt/bin/mpiexec.hydra -n 6 bin/dynmo train run.toml"}},
		{"mpirun --map-by :oversubscribe -n 6 numactl -l ", []string{"OMPI_COMM_WORLD_SIZE"}, []string{"/opt/bin/prterun --map-by :oversubscribe -n 6 numactl -l bin/dynmo train run.toml"}},
		{"mpirun -n 6 ", []string{"OMPI_COMM_WORLD_SIZE"}, []string{"sh wrap.sh", "mpirun --oversubscribe -n 6 sh wrap.sh"}}, // the program is not in its line
		{"mpirun -n 6 ", []string{"OMPI_COMM_WORLD_SIZE"}, []string{"orted --daemonize"}},
		{"env OMPI_ALLOW_RUN_AS_ROOT=6 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=6 mpirun -n 6 ", []string{"OMPI_COMM_WORLD_SIZE", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}, nil},
		{"", []string{"OMPI_ALLOW_RUN_AS_ROOT"}, nil}, // no mpirun
	} {
		getenv := func(name string) string {
			if slices.Contains(launcher.set, name) {
				return "6"
			}
			return ""
		}
		var ancestors []ancestor
		for _, line := range launcher.lines {
			ancestors = append(ancestors, ancestor{strings.Fields(line), ""})
		}
		if got := resumeCommand(again, "/my runs", "runs/a", c, getenv, ancestors); got != "cd '/my runs' && "+launcher.prefix+want {
			t.Errorf("got %s, want %s%s", got, launcher.prefix, want)
		}
	}
}

// TestResumeCommandElsewhere: settings from standard input or from a pipe are those of the run's
// directory, and mpirun's relative paths hold in mpirun's folder.
func TestResumeCommandElsewhere(t *testing.T) {
	none := func(string) string { return "" }
	for _, settings := range []string{"-", "/dev/null"} {
		got := resumeCommand([]string{"dynmo", "train", settings}, "", "runs/a", config.Default(), none, nil)
		if want := "dynmo train runs/a/config.toml --run-dir runs/a --resume"; got != want {
			t.Errorf("%s: got %s, want %s", settings, got, want)
		}
	}
	mpi := func(name string) string { return map[string]string{"OMPI_COMM_WORLD_SIZE": "4"}[name] }
	got := resumeCommand([]string{"dynmo", "train", "-"}, "/a/b", "run", config.Default(), mpi, []ancestor{{strings.Fields("mpirun --wdir b -n 4 dynmo train c.toml"), "/a"}})
	if want := "cd /a && mpirun --wdir b -n 4 dynmo train run/config.toml --run-dir run --resume"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFindAncestors: the first ancestor of a test is go test or what else started it.
func TestFindAncestors(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("no /proc")
	}
	list := findAncestors()
	if len(list) == 0 || len(list) > mostAncestors || slices.ContainsFunc(list, func(a ancestor) bool { return a.words[0] == "" || a.at == "" }) {
		t.Errorf("%q", list)
	}
}

// TestResumeLineRuns: the line that a stopped run prints resumes it as printed, also in another folder. It
// has the options and variables without which Open MPI's mpirun would start nothing: as root, and with
// more ranks than cores.
func TestResumeLineRuns(t *testing.T) {
	four.need(t)
	if version, err := exec.Command("mpirun", "--version").CombinedOutput(); err != nil || !strings.Contains(string(version), "Open MPI") {
		t.Skip("mpirun is not Open MPI's")
	}
	program, err := build()
	expect.OK(t, err)
	dir := folder(t, "")
	run := filepath.Join(dir, "run")
	plain := func(line ...string) *exec.Cmd {
		cmd := inWorld(t, dir, line...)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool {
			return strings.Contains(v, "oversubscribe") || strings.Contains(v, "binding") || strings.HasPrefix(v, "OMPI_ALLOW_RUN_AS_ROOT")
		})
		return cmd
	}
	stopped := func(cmd *exec.Cmd, steps int) string {
		r := start(t, cmd)
		r.reach(t, run, steps)
		expect.OK(t, syscall.Kill(cmd.Process.Pid, syscall.SIGUSR2))
		e := r.wait(t)
		_, line, found := strings.Cut(e.stderr, "to resume: ")
		if e.status != exitStopped || !found {
			t.Fatalf("status %d, want a stopped run and how to resume it: %s", e.status, e.stderr)
		}
		line, _, _ = strings.Cut(line, "\n")
		return line
	}
	asRoot := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	options := []string{"mpirun", "--oversubscribe", "--bind-to", "none", "-np", "4", program}
	first := plain(append(options, training(append(endless, "--run-dir", "run")...)...)...)
	first.Env = append(first.Env, asRoot...)
	line := stopped(first, 3)
	begin, command := "cd "+dir+" && ", commandLine(slices.Concat([]string{"env"}, asRoot, options))+" train run.toml "
	if !strings.HasPrefix(line, begin+command) {
		t.Fatalf("to resume: %s, want %s%s…", line, begin, command)
	}
	before := len(metrics(t, run))
	elsewhere := plain("sh", "-c", begin+"exec "+strings.TrimPrefix(line, begin)) // the signal is for mpirun
	elsewhere.Dir = t.TempDir()
	if again := stopped(elsewhere, before+3); again != line {
		t.Errorf("the resumed run prints %s, want %s", again, line)
	}
	if after := len(metrics(t, run)); after < before+3 {
		t.Errorf("%d steps after %d", after, before)
	}
}
