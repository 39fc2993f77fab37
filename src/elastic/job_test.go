package elastic

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/expect"
)

// fakeCommands puts a stand-in for Slurm's commands in place of all programs, except those that the
// stand-in needs. The job has nodes a, b and c. It returns the directory of the stand-in.
func fakeCommands(t *testing.T, behaviour string, names ...string) (dir string) {
	t.Helper()
	script, err := filepath.Abs("testdata/slurm.sh")
	expect.OK(t, err)
	dir = t.TempDir()
	bin, temporary := filepath.Join(dir, "bin"), filepath.Join(dir, "tmp")
	expect.OK(t, os.Mkdir(bin, 0o700))
	expect.OK(t, os.Mkdir(temporary, 0o700))
	for _, name := range names {
		expect.OK(t, os.Symlink(script, filepath.Join(bin, name)))
	}
	expect.OK(t, os.WriteFile(filepath.Join(dir, "nodes"), []byte("a,b,c\n"), 0o600))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv("FAKE", behaviour)
	t.Setenv("FAKE_DIR", dir)
	t.Setenv("TMPDIR", temporary)
	return dir
}

// TestSlurmRefuses: whatever becomes of the call that takes nodes back, a release ends, and
// says why. Nothing is left behind, and scontrol runs where no other user can be.
func TestSlurmRefuses(t *testing.T) {
	for _, c := range []struct {
		behaviour string
		tries     int
		refused   string
	}{
		{"works", 1, "<nil>"},
		{"late", 1, "<nil>"}, // it fails once it has had its effect
		{"a while busy", 4, "<nil>"},
		{"busy", 6, "busy: scontrol update: slurm_update error: Job update not available right now, the DB index is being set, try again in a bit for job 7"},
		{"permission", 1, "scontrol update: Access/permission denied for job JobId=7"},
		{"lies", 1, "the job has 3 nodes after that, want 2"},
		{"hangs", 1, "scontrol update: no answer in 300ms"},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			expect.NewFault(t, "F17", "")
			dir := fakeCommands(t, c.behaviour, "scontrol", "squeue")
			job := Job{Number: "7"}
			if c.behaviour == "hangs" {
				job.limit = 300 * time.Millisecond
				tries, err := shrink(t.Context(), job, []string{"a", "b"}, time.Minute)
				same(t, "tries, refused", []any{tries, err}, []any{c.tries, c.refused})
			} else {
				synctest.Test(t, func(t *testing.T) {
					tries, err := shrink(t.Context(), job, []string{"a", "b"}, 10*time.Second)
					same(t, "tries, refused", []any{tries, err}, []any{c.tries, c.refused})
				})
			}
			left, err := os.ReadDir(os.Getenv("TMPDIR"))
			expect.OK(t, err)
			same(t, "left behind", left, []any{})
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			expect.OK(t, err)
			cwd, call, _ := strings.Cut(strings.SplitN(string(calls), "\n", 2)[0], " ")
			same(t, "call", call, "update JobId=7 NodeList=a,b")
			if filepath.Dir(cwd) != os.Getenv("TMPDIR") {
				t.Errorf("scontrol ran in %s", cwd)
			}
		})
	}
}

// TestKeepRefusesNames: Slurm would take a part of such a name for something else.
func TestKeepRefusesNames(t *testing.T) {
	for _, name := range []string{"", "a;b", "a,b", "node[1-2]", "a b", "-a", "a=b", "a\nb", strings.Repeat("a", 300)} {
		if err := (Job{Number: "7"}).Keep(t.Context(), []string{"a", name}); err == nil || !strings.Contains(err.Error(), "is no name of a node") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestOutputIsCapped: a command that does not end to speak fills no memory.
func TestOutputIsCapped(t *testing.T) {
	var c capped
	for range 3 {
		n, err := c.Write(make([]byte, mostOutput/2+1))
		expect.OK(t, err)
		same(t, "taken", n, mostOutput/2+1)
	}
	same(t, "kept", c.Len(), mostOutput)
}

// agreed returns what ranks on some nodes agree on, the same on all of them.
func agreed(t *testing.T, s config.Elastic, nodes []string, env map[string]string, canLeave error) Terms {
	t.Helper()
	terms := make([]Terms, len(nodes))
	expect.OK(t, local.Run(len(nodes), func(tr comm.Transport) (err error) {
		getenv := func(name string) string {
			if name == "SLURMD_NODENAME" {
				return nodes[tr.Rank()]
			}
			return env[name]
		}
		terms[tr.Rank()], err = Agree(comm.New(tr, comm.Options{}), s, Here{getenv, canLeave})
		return err
	}))
	for _, other := range terms {
		same(t, "terms of another rank", other, terms[0])
	}
	return terms[0]
}

// step is the environment of a step of Slurm.
func step(more ...string) map[string]string {
	env := map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
	for _, text := range more {
		name, value, _ := strings.Cut(text, "=")
		env[name] = value
	}
	return env
}

func TestAgree(t *testing.T) {
	fakeCommands(t, "works", "scontrol", "squeue")
	host, err := os.Hostname()
	expect.OK(t, err)
	nodes := []string{"a", "a", "b"}
	for _, c := range []struct {
		release string
		env     map[string]string
		want    Terms
	}{
		{"park", nil, Terms{Mode: Park, Nodes: []string{host, host, host}}},
		{"exit", nil, Terms{Mode: exit, Nodes: []string{host, host, host}}},
		{"slurm", step("SLURM_HET_SIZE=1", "SLURM_DISTRIBUTION=block:block"), Terms{Mode: Slurm, Nodes: nodes, Batch: "a", Job: Job{Number: "7"}}},
		{"restart", map[string]string{"SLURM_JOB_ID": "7", "OMPI_COMM_WORLD_SIZE": "3"}, Terms{Mode: Restart, Nodes: nodes, Batch: "a", Job: Job{Number: "7"}}},
		{"restart", step("SLURM_ARRAY_JOB_ID=5", "SLURM_ARRAY_TASK_ID=2"), Terms{Mode: Restart, Nodes: nodes, Batch: "a", Job: Job{Number: "5_2"}}},
	} {
		same(t, c.release, agreed(t, config.Elastic{Release: c.release}, nodes, c.env, nil), c.want)
	}
}

// TestUnmet: what a mode misses is found before the first step, and ranks park.
func TestUnmet(t *testing.T) {
	for _, c := range []struct {
		name, release, behaviour string
		programs                 []string
		env                      map[string]string
		nodes                    []string
		canLeave                 error
		want                     string
	}{
		{name: "mpirun", release: "slurm", env: step("OMPI_COMM_WORLD_SIZE=4"), want: "mpirun does not survive the loss of a node"},
		{name: "no job", release: "restart", env: map[string]string{"OMPI_COMM_WORLD_SIZE": "4"}, want: "no Slurm job"},
		{name: "no step", release: "restart", env: map[string]string{"SLURM_JOB_ID": "7"}, want: "no step of a Slurm job"},
		{name: "no goodbye", release: "exit", canLeave: fmt.Errorf("no libpmix"), want: `rank 0 cannot end before the others: no libpmix`},
		{name: "het", release: "slurm", env: step("SLURM_HET_SIZE=2"), want: "heterogeneous"},
		{name: "arbitrary", release: "slurm", env: step("SLURM_DISTRIBUTION=arbitrary"), want: "distributed arbitrarily"},
		{name: "node", release: "slurm", nodes: []string{"a", "b;c"}, want: `rank 1: SLURMD_NODENAME = "b;c" is no name of a node`},
		{name: "no scontrol", release: "slurm", programs: []string{"squeue"}, want: "scontrol is not on PATH"},
		{name: "disabled", release: "slurm", behaviour: "disabled", want: "disable_job_shrink"},
		{name: "job", release: "restart", env: step("SLURM_JOB_ID=x"), want: `the number of the Slurm job is "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.programs == nil {
				c.programs = []string{"scontrol", "squeue"}
			}
			if c.env == nil {
				c.env = step()
			}
			if c.nodes == nil {
				c.nodes = []string{"a", "b"}
			}
			dir := fakeCommands(t, c.behaviour, c.programs...)
			if c.programs[0] != "scontrol" { // which the system may have
				t.Setenv("PATH", filepath.Join(dir, "bin"))
			}
			got := agreed(t, config.Elastic{Release: c.release}, c.nodes, c.env, c.canLeave)
			if got.Mode != Park || !strings.Contains(got.Unmet, c.want) || !strings.HasPrefix(got.Unmet, fmt.Sprintf("elastic.release = %q: ", c.release)) {
				t.Errorf("%+v, want …%s…", got, c.want)
			}
		})
	}
}

// TestBatchNode: a batch node without ranks is kept; a job without one keeps its ranks'.
func TestBatchNode(t *testing.T) {
	fakeCommands(t, "works", "scontrol", "squeue")
	t.Setenv("FAKE_BATCH", "login")
	got := agreed(t, config.Elastic{Release: "slurm"}, []string{"a", "b"}, step(), nil)
	same(t, "kept", got.Kept([]int{0}), []string{"a", "login"})
	t.Setenv("FAKE_BATCH", "")
	got = agreed(t, config.Elastic{Release: "slurm"}, []string{"a", "b"}, step(), nil)
	same(t, "kept", got.Kept([]int{0}), []string{"a"})
}

// TestCallEnds: the end of the run ends a call under way.
func TestCallEnds(t *testing.T) {
	fakeCommands(t, "hangs", "scontrol", "squeue")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := shrink(ctx, Job{Number: "7"}, []string{"a"}, time.Minute); err == nil {
		t.Error("no error")
	}
}
