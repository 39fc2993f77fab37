package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestRecorded: the settings of a run of another version are read, and what this one
// does not know of them is told. What is wrong otherwise stays an error.
func TestRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	expect.OK(t, os.WriteFile(path, []byte("old = 3\n[train]\nsteps = 7\n[balance]\nsmooth = 0.5\n[gone]\nx = 1\n"), 0o666))
	c, unknown, err := Recorded(path)
	if want := []string{"old", "balance.smooth", "gone.x"}; err != nil || c.Train.Steps != 7 || !slices.Equal(unknown, want) {
		t.Errorf("%d steps, unknown %q, %v; want 7, %q", c.Train.Steps, unknown, err, want)
	}
	expect.OK(t, os.WriteFile(path, []byte("[train]\nsteps = -7\n"), 0o666))
	if _, _, err := Recorded(path); err == nil || !strings.Contains(err.Error(), "config.toml:2: train.steps = -7") {
		t.Errorf("error %v, want one about train.steps", err)
	}
	if _, _, err := Recorded(path + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}
