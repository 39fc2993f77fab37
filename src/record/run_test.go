package record

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/expect"
)

// lines returns the lines of a file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	expect.OK(t, err)
	defer f.Close()
	var all []string
	for s := bufio.NewScanner(f); s.Scan(); {
		all = append(all, s.Text())
	}
	return all
}

func TestRunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	r, err := Open(dir, "[run]\n", Provenance{Host: "node1"})
	expect.OK(t, err)
	for _, m := range []Metrics{
		{Step: 1, Clock: "wall", Loss: 5.5, GradNorm: 1, LR: 1e-3, StepSeconds: 0.25, TokensPerSecond: 2048,
			BubbleRatio: 0.125, Imbalance: 0.5, LayersPerStage: []int{3, 5}, BytesPerStage: []int64{10, 20}},
		{Step: 2, Clock: "wall", Loss: Float(math.NaN()), GradNorm: Float(math.Inf(1)), Skipped: true},
	} {
		expect.OK(t, r.Step(m))
	}
	// Lines are on disk before the run is closed: a killed run keeps them.
	steps := lines(t, filepath.Join(dir, "metrics.jsonl"))
	want := []string{
		`{"step":1,"clock":"wall","loss":5.5,"grad_norm":1,"lr":0.001,"step_seconds":0.25,"balance_seconds":0,"tokens_per_second":2048,"makespan":0,"predicted":0,"bottleneck":0,"optimum":0,"bubble_ratio":0.125,"imbalance":0.5,"ceiling":0,"idle":{"busy":0,"inherent":0,"imbalance":0,"memory":0,"communication":0,"balancing":0},"schedule":"","cuts":null,"layers_per_stage":[3,5],"bytes_per_stage":[10,20]}`,
		`{"step":2,"clock":"wall","loss":null,"grad_norm":null,"lr":0,"step_seconds":0,"balance_seconds":0,"tokens_per_second":0,"makespan":0,"predicted":0,"bottleneck":0,"optimum":0,"bubble_ratio":0,"imbalance":0,"ceiling":0,"idle":{"busy":0,"inherent":0,"imbalance":0,"memory":0,"communication":0,"balancing":0},"schedule":"","cuts":null,"layers_per_stage":null,"bytes_per_stage":null,"skipped":true}`,
	}
	if strings.Join(steps, "\n") != strings.Join(want, "\n") {
		t.Errorf("metrics:\n%s\nwant:\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}
	var m Metrics
	if err := json.Unmarshal([]byte(steps[0]), &m); err != nil || m.Loss != 5.5 || m.LR != 1e-3 || m.Makespan != 0 {
		t.Errorf("step 1 reads back as %+v, %v", m, err)
	}
	if err := json.Unmarshal([]byte(steps[1]), &m); err != nil || !math.IsNaN(float64(m.Loss)) || !math.IsNaN(float64(m.GradNorm)) || m.LR != 0 {
		t.Errorf("the diverged step reads back as %+v, %v", m, err)
	}
	if err := json.Unmarshal([]byte(`{"loss":"much"}`), &m); err == nil {
		t.Error("a loss that is no number was read")
	}
	if err := r.Event(Event{Step: 2, Kind: Migrate, Clock: "virtual", Before: 2, After: 1.5, Bytes: 7, Seconds: 0.5,
		Detail: map[string]any{"layers": []int{4}, "from": 0}}); err != nil {
		t.Fatal(err)
	}
	expect.OK(t, r.Close())
	events := lines(t, filepath.Join(dir, "events.jsonl"))
	if want := `{"step":2,"kind":"migrate","clock":"virtual","before":2,"after":1.5,"bytes":7,"seconds":0.5,"detail":{"from":0,"layers":[4]}}`; len(events) != 1 || events[0] != want {
		t.Errorf("events %s\nwant %s", events, want)
	}
	if got := lines(t, filepath.Join(dir, "config.toml")); len(got) != 1 || got[0] != "[run]" {
		t.Errorf("config.toml holds %q", got)
	}
	var p Provenance
	text, err := os.ReadFile(filepath.Join(dir, "provenance.json"))
	expect.OK(t, err)
	if err := json.Unmarshal(text, &p); err != nil || p.Host != "node1" {
		t.Errorf("provenance %+v, %v", p, err)
	}
}

func TestASecondRunInTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	first, err := Open(dir, "first", Provenance{})
	expect.OK(t, err)
	defer first.Close()
	_, err = Open(dir, "second", Provenance{})
	want := "record: run directory " + dir + ": a run already lies there (metrics.jsonl); wanted a new or empty directory"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := lines(t, filepath.Join(dir, "config.toml")); got[0] != "first" {
		t.Errorf("the first run's settings are now %q", got)
	}
}

func TestOthersCannotReadARun(t *testing.T) {
	for _, mask := range []int{0, 0o022} {
		old := syscall.Umask(mask)
		dir := filepath.Join(t.TempDir(), "run")
		r, err := Open(dir, "", Provenance{})
		syscall.Umask(old)
		expect.OK(t, err)
		defer r.Close()
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			want := fs.FileMode(fileMode)
			if d.IsDir() {
				want = directoryMode
			}
			if err == nil && info.Mode().Perm() != want {
				t.Errorf("umask %#o: %s has mode %#o, want %#o", mask, path, info.Mode().Perm(), want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	expect.OK(t, os.Mkdir(open, 0o700))
	expect.OK(t, os.Chmod(open, 0o777))
	file := filepath.Join(t.TempDir(), "file")
	expect.OK(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct{ name, dir, want string }{
		{"everybody may write", open,
			"record: run directory " + open + ": mode 0777 lets everybody write; wanted a private directory (chmod o-w)"},
		{"a file", file, "record: mkdir " + file + ": not a directory"},
	} {
		if _, err := Open(c.dir, "", Provenance{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestAFullDiskIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	defer full.Close()
	r := Run{metrics: full, events: full}
	if err := r.Step(Metrics{}); err == nil || err.Error() != "record: write /dev/full: no space left on device" {
		t.Errorf("got %v", err)
	}
	if err := r.Event(Event{Detail: map[string]any{"x": math.NaN()}}); err == nil {
		t.Error("a detail that JSON cannot hold is no error")
	}
}
