package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestRecorded: the settings of a run of another version are read, and settings unknown to this
// version are reported. Any other fault stays an error.
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

// TestFormerName: settings are read by a former name too, with a note that tells the present one.
func TestFormerName(t *testing.T) {
	const file = "[comm]\ncarrier = \"host\"\n"
	for _, c := range []struct {
		file  string
		sets  []string
		value string
		notes []string
	}{
		{"[comm]\ntransport = \"host\"\n", nil, "host", nil},
		{file, nil, "host", []string{"run.toml:2: comm.carrier is called comm.transport now"}},
		{"", []string{"comm.carrier=nccl"}, "nccl", []string{"--set: comm.carrier is called comm.transport now"}},
		{file, []string{"comm.transport=nccl"}, "nccl", []string{"run.toml:2: comm.carrier is called comm.transport now"}},
	} {
		got, notes, err := load("run.toml", []byte(c.file), c.sets)
		if err != nil || got.Comm.Transport != c.value || !slices.Equal(notes, c.notes) {
			t.Errorf("%q %q: %q, notes %q, %v; want %q, %q", c.file, c.sets, got.Comm.Transport, notes, err, c.value, c.notes)
		}
	}
	got, unknown, err := Parse("settings", []byte(file))
	if err != nil || got.Comm.Transport != "host" || unknown != nil {
		t.Errorf("of a checkpoint: %q, unknown %q, %v", got.Comm.Transport, unknown, err)
	}
	_, _, err = load("run.toml", []byte("[comm]\ncarrier = \"pigeon\"\n"), nil)
	if want := `run.toml:2: comm.transport = "pigeon"`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
