package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// obstacle is a run whose checkpoints cannot be written until `removed` warnings have been
// reported.
type obstacle struct {
	run
	path    string
	removed int // number of warnings after which the obstacle is removed
	told    []string
}

func (o *obstacle) Say(line string) {
	if !strings.HasPrefix(line, "warning: no checkpoint") {
		return
	}
	if o.told = append(o.told, line); len(o.told) == o.removed {
		_ = os.Remove(o.path)
	}
}

// TestCheckpointsThatFail: a checkpoint that cannot be written is reported, and training continues.
// Once writing works again, the next checkpoint is intact. Three failures in a row end the run.
func TestCheckpointsThatFail(t *testing.T) {
	expect.NewFault(t, "F05", "")
	c := small(t)
	c.Parallel.Stages, c.Train.Steps, c.Checkpoint.Every = 2, 8, "1"
	for removed, want := range map[int]string{2: "", 9: "3 in a row failed"} {
		dir := t.TempDir()
		o := &obstacle{path: filepath.Join(dir, record.CheckpointDir), removed: removed}
		expect.OK(t, os.Symlink(filepath.Join(dir, "nowhere"), o.path))
		err := (&session{watch: o, dir: dir}).try(t, c)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), record.CheckpointDir) {
				t.Errorf("error %v, want %q", err, want)
			}
			continue
		}
		expect.OK(t, err)
		newest, damaged, err := checkpoint.Newest(dir)
		expect.OK(t, err)
		if len(o.told) != 2 || len(damaged) > 0 || newest.Step != c.Train.Steps {
			t.Errorf("told %q, newest after step %d, damaged %v", o.told, newest.Step, damaged)
		}
	}
}
