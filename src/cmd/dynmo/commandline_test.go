package main

import (
	"slices"
	"testing"

	"dynmo/src/config"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"dynmo", "train", "jobs/a.toml", "--set", "run.seed=3"}, "dynmo train jobs/a.toml --set run.seed=3"},
		{[]string{"--set", "run.name=two words", ""}, "--set 'run.name=two words' ''"},
		{[]string{"it's", "$HOME", "a|b"}, `'it'\''s' '$HOME' 'a|b'`},
	} {
		if got := commandLine(c.words); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestResumeCommand(t *testing.T) {
	c := config.Default()
	c.Parallel.Stages, c.Parallel.Replicas = 2, 3
	again := append([]string{"bin/dynmo", "train", "run.toml"}, setWords([]string{"run.name=my run"})...)
	const want = "bin/dynmo train run.toml --set 'run.name=my run' --run-dir runs/a --resume"
	for prefix, set := range map[string][]string{
		"":             {},
		"mpirun -n 6 ": {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_PROCID"}, // in a job of Slurm's
		"srun -n 6 ":   {"SLURM_PROCID", "PMIX_RANK"},
	} {
		getenv := func(name string) string {
			if slices.Contains(set, name) {
				return "6"
			}
			return ""
		}
		if got := resumeCommand(again, "runs/a", c, getenv); got != prefix+want {
			t.Errorf("got %s, want %s%s", got, prefix, want)
		}
	}
}
