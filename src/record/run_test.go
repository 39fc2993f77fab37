package record

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
			BubbleRatio: 0.125, Imbalance: 0.5, LayersPerStage: []int{3, 5}, BytesPerStage: []int64{10, 20},
			BatchSize: 8, Sparsity: 0.5, Time: time.Date(2026, 11, 22, 9, 25, 14, 123e6, time.UTC), WallSeconds: 83.5},
		{Step: 2, Clock: "wall", Loss: Float(math.NaN()), GradNorm: Float(math.Inf(1)), Skipped: true},
	} {
		expect.OK(t, r.Step(m))
	}
	// Lines are on disk before the run is closed: a killed run keeps them.
	steps := lines(t, filepath.Join(dir, "metrics.jsonl"))
	want := []string{
		`{"step":1,"clock":"wall","loss":5.5,"grad_norm":1,"lr":0.001,"step_seconds":0.25,"balance_seconds":0,"measuring_seconds":0,"moving_seconds":0,"tokens_per_second":2048,"makespan":0,"predicted":0,"bottleneck":0,"optimum":0,"lower_bound":0,"bubble_ratio":0.125,"imbalance":0.5,"ceiling":0,"idle":{"busy":0,"inherent":0,"imbalance":0,"memory":0,"communication":0,"balancing":0},"schedule":"","cuts":null,"layers_per_stage":[3,5],"bytes_per_stage":[10,20],"batch_size":8,"sparsity":0.5,"time":"2026-11-22T09:25:14.123Z","wall_seconds":83.5}`,
		`{"step":2,"clock":"wall","loss":null,"grad_norm":null,"lr":0,"step_seconds":0,"balance_seconds":0,"measuring_seconds":0,"moving_seconds":0,"tokens_per_second":0,"makespan":0,"predicted":0,"bottleneck":0,"optimum":0,"lower_bound":0,"bubble_ratio":0,"imbalance":0,"ceiling":0,"idle":{"busy":0,"inherent":0,"imbalance":0,"memory":0,"communication":0,"balancing":0},"schedule":"","cuts":null,"layers_per_stage":null,"bytes_per_stage":null,"skipped":true,"batch_size":0,"sparsity":0,"wall_seconds":0}`,
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

func TestASecondRunNeedsForce(t *testing.T) {
	for _, name := range runFiles {
		dir := t.TempDir()
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		_, err := Open(dir, "# second", Provenance{})
		want := "record: run directory " + dir + ": a run already lies there (" + name + " exists): --resume goes on with it, --force writes over it"
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if got := names(t, dir); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: the refused run left %v", name, got)
		}
	}
}

// names returns the files of a directory in lexical order, TensorBoard's under its prefix.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	expect.OK(t, err)
	var list []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), boardPrefix) {
			list = append(list, boardPrefix)
		} else {
			list = append(list, e.Name())
		}
	}
	return list
}

// made are the files of a run from its beginning on.
var made = []string{SettingsFile, CostsFile, EventsFile, boardPrefix, MetricsFile, ProvenanceFile, lockFile, SummaryFile, TraceFile}

// A run makes all its files at once, and Replace only removes those of a run.
func TestReplace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*", "run")
	for i, settings := range []string{"# first", "# second"} {
		r, err := Replace(dir, settings, Provenance{})
		expect.OK(t, err)
		want := made
		if i > 0 {
			want = append(slices.Clone(made), "notes.txt")
			slices.Sort(want)
		}
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", settings, got, want)
		}
		expect.OK(t, r.Step(Metrics{}))
		expect.OK(t, r.Close())
		if n := len(lines(t, filepath.Join(dir, MetricsFile))); n != 1 {
			t.Errorf("%s: %d steps, want 1", settings, n)
		}
		expect.OK(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o666))
	}
	if got := lines(t, filepath.Join(dir, SettingsFile)); got[0] != "# second" {
		t.Errorf("settings %q", got)
	}
}

func TestCreate(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "runs")
	at := time.Date(2026, 11, 22, 9, 25, 14, 0, time.UTC)
	for _, c := range []struct{ name, want string }{
		{"demo", "demo-20261122-092514"},
		{"demo", "demo-20261122-092514-2"},
		{"demo", "demo-20261122-092514-3"},
		{"", "run-20261122-092514"},
		{"../a b/\x1b[31m", "-.-a-b---31m-20261122-092514"},
		{strings.Repeat("ü", 200), strings.Repeat("ü", longest) + "-20261122-092514"},
	} {
		r, err := Create(parent, c.name, at, "", Provenance{})
		expect.OK(t, err)
		expect.OK(t, r.Close())
		if got := filepath.Base(r.Dir()); got != c.want {
			t.Errorf("%q: %s, want %s", c.name, got, c.want)
		}
	}
}

// Files and directories of a run have the modes that the umask leaves.
func TestRunFollowsUmask(t *testing.T) {
	for _, mask := range []fs.FileMode{0, 0o022, 0o077} {
		old := syscall.Umask(int(mask))
		dir := filepath.Join(t.TempDir(), "runs", "run")
		r, err := Open(dir, "", Provenance{})
		syscall.Umask(old)
		expect.OK(t, err)
		defer r.Close()
		err = filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			want := 0o666 &^ mask
			if d.IsDir() {
				want = 0o777 &^ mask
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

// Where one file cannot be made none is left, nor a directory that was made for them.
func TestOpenLeavesNothing(t *testing.T) {
	for _, there := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "run")
		if there {
			expect.OK(t, os.Mkdir(dir, 0o777))
		}
		if _, err := Open(dir, "", Provenance{Host: "a/b"}); err == nil || !strings.Contains(err.Error(), boardPrefix) {
			t.Fatalf("got %v, want an error of TensorBoard's file, whose name no file can have", err)
		}
		if list, err := os.ReadDir(dir); there != (err == nil) || len(list) > 0 {
			t.Errorf("there before %v: left %v, %v", there, list, err)
		}
	}
}

// fullDisk returns a file that takes nothing.
func fullDisk(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system")
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestFullDisk: what the disk does not take is written once it takes it again, in order. At the end
// the run says what is missing, and no file ends in half an entry.
func TestFullDisk(t *testing.T) {
	for _, again := range []bool{true, false} {
		r, err := Open(t.TempDir(), "", Provenance{})
		expect.OK(t, err)
		var told []string
		r.Warn = func(text string) { told = append(told, text) }
		want := []string{"warning: records are kept in memory until they can be written: write /dev/full: no space left on device"}
		expect.OK(t, r.Step(Metrics{Step: 0}))
		disk := make(map[*appendFile]*os.File)
		for _, f := range r.appended() {
			disk[f], f.File = f.File, fullDisk(t)
		}
		expect.OK(t, r.Step(Metrics{Step: 1, Time: time.Now().Add(2 * boardEvery)}))
		expect.OK(t, r.Event(Event{Kind: Saved}))
		expect.OK(t, r.Costs(Phase{}))
		expect.OK(t, r.Trace(twoStages(1)))
		if again {
			for f, was := range disk {
				f.File = was
			}
			expect.OK(t, r.Step(Metrics{Step: 2}))
			want = append(want, "the records that were kept in memory are written")
		} else {
			for range disk {
				want = append(want, "warning: records: full is incomplete: no space left on device")
			}
		}
		_ = r.Close()
		if !slices.Equal(told, want) {
			t.Errorf("again %v: told %q, want %q", again, told, want)
		}
		text, err := os.ReadFile(filepath.Join(r.Dir(), MetricsFile))
		expect.OK(t, err)
		if n := strings.Count(string(text), "\n"); again && n != 3 || !again && n != 1 {
			t.Errorf("again %v: %d steps: %s", again, n, text)
		}
	}
}

// A run directory that is gone, or another one, ends the run with the next look at it,
// or at its end.
func TestLostRunDirectory(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(dir string) error
		want string
	}{
		{"removed", os.RemoveAll, "stat DIR/metrics.jsonl: no such file or directory"},
		{"moved away, another in its place", func(dir string) error {
			return cmp.Or(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old")))
		}, "metrics.jsonl there is another file"},
		{"no longer writable", func(dir string) error {
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
			return os.Chmod(dir, 0o500)
		}, "not writable: permission denied"},
	} {
		if strings.HasPrefix(c.want, "not writable") && os.Geteuid() == 0 {
			continue // root writes everywhere but to a read-only file system
		}
		for _, late := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "run")
			r, err := Open(dir, "", Provenance{})
			expect.OK(t, err)
			expect.OK(t, r.Step(Metrics{}))
			expect.OK(t, c.lose(dir))
			if late {
				err = r.Close()
			} else {
				r.looked = time.Now().Add(-2 * lookEvery)
				err = r.Step(Metrics{})
				_ = r.Close()
			}
			want := "record: run directory DIR is lost: " + c.want
			if want = strings.ReplaceAll(want, "DIR", dir); err == nil || err.Error() != want {
				t.Errorf("%s, at the end %v: got  %v\nwant %s", c.name, late, err, want)
			}
		}
	}
}

func TestProcessorName(t *testing.T) {
	for _, c := range []struct{ cpuinfo, want string }{
		{"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n\nmodel\t: 80\nmodel name\t: another\n",
			"AMD EPYC (Zen 4)"},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.80GHz\nstepping\t: 7\n",
			"Intel(R) Xeon(R) CPU @ 2.80GHz (Cascade Lake)"},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\nstepping\t: 3\n", "Xeon (Skylake-X)"},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 45\nmodel name\t: Xeon\nstepping\t: 7\n", "Xeon (family 6, model 45)"},
		{"model name\t: A CPU: 2.20GHz\n", "A CPU: 2.20GHz"},
		{"processor : 0\n", "unknown"},
		{"", "unknown"},
	} {
		if got := processorName(strings.NewReader(c.cpuinfo)); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
