package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"dynmo/src/cost"
	"dynmo/src/expect"
)

// stepOf returns the metrics of a step of a run whose layers move after step 5.
func stepOf(step int) Metrics {
	cuts := []int{0, 2, 4}
	if step > 5 {
		cuts = []int{0, 3, 4}
	}
	return Metrics{Step: step, Clock: "virtual", Loss: Float(10 - step), StepSeconds: Float(1 + step), Cuts: cuts, Skipped: step == 2, WallSeconds: Float(step)}
}

// tell records a run of steps [lo, hi) that was killed after the last. Phases have four steps; the
// phase that was under way is missing. The model changes before step 3, checkpoints follow 5 and 8
// steps, and timelines show steps 1 and 6.
func tell(t *testing.T, r *Run, lo, hi int) {
	t.Helper()
	for step := lo; step < hi; step++ {
		if step == 3 {
			expect.OK(t, r.Event(Event{Step: 3, Kind: Dynamic}))
		}
		if step == 1 || step == 6 {
			expect.OK(t, r.Trace(twoStages(step)))
		}
		expect.OK(t, r.Step(stepOf(step)))
		if step%4 == 3 {
			expect.OK(t, r.Costs(Phase{Phase: cost.Phase{Step: max(lo, step-3), Steps: step + 1 - max(lo, step-3)}}))
		}
		if step == 5 {
			expect.OK(t, r.Event(Event{Step: 5, Kind: Migrate}))
		}
		if step == 4 || step == 7 {
			expect.OK(t, r.Event(Event{Step: step + 1, Kind: Saved}))
		}
	}
}

// killed returns the directory of a run that was killed after a number of steps. If torn, every
// file has a torn last line.
func killed(t *testing.T, steps int, torn bool) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	r, err := Open(dir, "# first", Provenance{Host: "one"})
	expect.OK(t, err)
	tell(t, r, 0, steps)
	r.board.flush(time.Now())
	for _, f := range []*appendFile{&r.metrics, &r.events, &r.costs, &r.traces} {
		if torn {
			_, err := f.WriteString(`{"step":`)
			expect.OK(t, err)
		}
		expect.OK(t, f.Close())
	}
	expect.OK(t, os.WriteFile(filepath.Join(dir, SummaryFile), []byte("{}"), 0o666))
	expect.OK(t, r.lock.file.Close()) // the file stays
	return dir
}

// holding returns the kinds and steps of events, and steps and lengths of phases.
func holding(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	for _, line := range lines(t, filepath.Join(dir, EventsFile)) {
		var step, kind = between(line, `"step":`, ","), between(line, `"kind":"`, `"`)
		list = append(list, kind+" "+step)
	}
	for _, line := range lines(t, filepath.Join(dir, CostsFile)) {
		list = append(list, fmt.Sprintf("[%s +%s]", between(line, `"step":`, ","), between(line, `"steps":`, ",")))
	}
	return strings.Join(list, ", ")
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

// steps returns the steps of metrics.jsonl.
func steps(t *testing.T, dir string) (list []string) {
	t.Helper()
	for _, line := range lines(t, filepath.Join(dir, MetricsFile)) {
		list = append(list, between(line, `"step":`, ","))
	}
	return list
}

func TestResume(t *testing.T) {
	for _, c := range []struct {
		name    string
		steps   int // of the run that was killed
		torn    bool
		from    int
		told    string
		metrics string
		cut     int
		missing int
		damaged int
	}{
		{"from a checkpoint", 10, false, 5, "dynamic 3, checkpoint 5, resume 5, [0 +4], [4 +1]", "0 1 2 3 4", 5 + 2, 0, 0},
		{"torn lines", 10, true, 5, "dynamic 3, checkpoint 5, resume 5, [0 +4], [4 +1]", "0 1 2 3 4", 5 + 2, 0, 4},
		{"a phase was not written", 10, false, 10, "dynamic 3, checkpoint 5, migrate 5, checkpoint 8, resume 10, [0 +4], [4 +6]", "0 1 2 3 4 5 6 7 8 9", 0, 0, 0},
		{"lines are missing", 10, false, 12, "dynamic 3, checkpoint 5, migrate 5, checkpoint 8, resume 12, [0 +4], [4 +8]", "0 1 2 3 4 5 6 7 8 9", 0, 2, 0},
		{"no checkpoint", 7, true, 0, "resume 0", "", 7 + 3 + 1, 0, 4},
		{"before any phase was written", 3, false, 2, "resume 2", "0 1", 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := killed(t, c.steps, c.torn)
			r, past, err := Resume(dir, "# second", Provenance{Host: "two"}, From{Step: c.from, Checkpoint: "ckpt/x", Clock: "virtual"})
			expect.OK(t, err)
			if got := holding(t, dir); got != c.told {
				t.Errorf("events and phases\n%s\nwant\n%s", got, c.told)
			}
			if got := strings.Join(steps(t, dir), " "); got != c.metrics {
				t.Errorf("steps %s, want %s", got, c.metrics)
			}
			if past.Cut != c.cut || past.Missing != c.missing || past.Damaged != c.damaged || past.Restarts != 1 {
				t.Errorf("%+v, want %d cut, %d missing, %d damaged", past, c.cut, c.missing, c.damaged)
			}
			for name, want := range map[string]string{SettingsFile: "# second", "config.1.toml": "# first", SummaryFile: ""} {
				if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
					t.Errorf("%s: %q, %v, want %q", name, text, err, want)
				}
			}
			for name, want := range map[string]string{ProvenanceFile: `"host": "two"`, "provenance.1.json": `"host": "one"`} {
				if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
					t.Errorf("%s: %q, %v, want %q", name, text, err, want)
				}
			}
			expect.OK(t, r.Close())
		})
	}
}

// TestResumedRunIsOneRun: a run was killed and went on. Except for records of the restart its
// files are those of a run that was not killed.
func TestResumedRunIsOneRun(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "run")
	r, err := Open(whole, "", Provenance{})
	expect.OK(t, err)
	tell(t, r, 0, 12)
	expect.OK(t, r.Close())
	dir := killed(t, 11, true)
	var past Past
	var kept passed
	for range 2 { // the second start is killed before its first step
		kept = nil
		if r, past, err = Resume(dir, "", Provenance{}, From{Step: 8, Checkpoint: "ckpt/x", Kept: &kept}); err != nil {
			t.Fatal(err)
		}
		if r.Timelines() != 2 {
			t.Errorf("%d timelines", r.Timelines())
		}
		if past.Restarts < 2 {
			expect.OK(t, r.lock.file.Close())
		}
	}
	tell(t, r, 8, 12)
	later := twoStages(11)
	later.Clock = "wall"
	expect.OK(t, r.Trace(later))
	expect.OK(t, r.Close())
	for _, name := range []string{MetricsFile, CostsFile} {
		if got, want := lines(t, filepath.Join(dir, name)), lines(t, filepath.Join(whole, name)); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if got, want := holding(t, dir), "dynamic 3, checkpoint 5, migrate 5, checkpoint 8, resume 8, resume 8, [0 +4]"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if past.Last.Step != 7 || past.Skipped != 1 || past.Restarts != 2 || len(past.Changes) != 1 || past.Changes[0].Step != 3 {
		t.Errorf("%+v", past)
	}
	if got, want := strings.Join(kept, " "), "0 1 2 dynamic 3 4 checkpoint migrate 5 6 7 checkpoint resume [0 +4] [4 +4] resume"; got != want {
		t.Errorf("kept: %s, want %s", got, want)
	}
	f, err := os.Open(filepath.Join(dir, TraceFile))
	expect.OK(t, err)
	defer f.Close()
	list, err := ReadTrace(TraceFile, f)
	expect.OK(t, err)
	var ran []string
	end := 0.0
	for _, l := range list {
		ran = append(ran, fmt.Sprint(l.Step, " ", l.Clock))
		if start := l.Stages[0][0].Start; l.Step == 11 && start < end {
			t.Errorf("step %d starts at %v, the one before it ends at %v", l.Step, start, end)
		}
		end = l.Stages[0][2].End
	}
	if got, want := strings.Join(ran, ", "), "1 virtual, 6 virtual, 11 wall"; got != want {
		t.Errorf("timelines %s, want %s", got, want)
	}
}

// TestBoardForgetsStepsThatAreRunAgain: TensorBoard's file of a restart names the step from which
// on earlier files are invalid.
func TestBoardForgetsStepsThatAreRunAgain(t *testing.T) {
	dir := killed(t, 10, false)
	r, _, err := Resume(dir, "", Provenance{Host: "two"}, From{Step: 5})
	expect.OK(t, err)
	expect.OK(t, r.Close())
	list, err := filepath.Glob(filepath.Join(dir, boardPrefix+"*.two.*.1"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	text, err := os.ReadFile(list[0])
	expect.OK(t, err)
	// step 6, counted from 1: field 2; SessionLog: field 7, of status START: field 1.
	if !bytes.Contains(text, []byte{2 << 3, 6, 7<<3 | 2, 2, 1 << 3, 1}) {
		t.Errorf("%x has no record that purges step 6", text)
	}
}

// TestResumeInNothing: without a run in it, or at all, the directory is that of a run that
// begins.
func TestResumeInNothing(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "a", "b")} {
		r, past, err := Resume(dir, "# first", Provenance{}, From{})
		expect.OK(t, err)
		if got := names(t, dir); !slices.Equal(got, made) || past.Restarts != 0 || past.Last != nil {
			t.Errorf("files %v, %+v", got, past)
		}
		expect.OK(t, r.Close())
	}
	dir := t.TempDir()
	expect.OK(t, os.Mkdir(filepath.Join(dir, CheckpointDir), 0o777))
	r, past, err := Resume(dir, "# first", Provenance{}, From{Step: 3, Checkpoint: "x"}) // records were removed
	expect.OK(t, err)
	if past.Restarts != 1 || past.Missing != 3 {
		t.Errorf("%+v", past)
	}
	expect.OK(t, r.Close())
}

// TestResumeAgainAfterAFailure: a restart that fails at its last file leaves a directory
// that is resumed as if it had not been tried.
func TestResumeAgainAfterAFailure(t *testing.T) {
	dir := killed(t, 10, true)
	if _, _, err := Resume(dir, "# second", Provenance{Host: "a/b"}, From{Step: 5}); err == nil || !strings.HasPrefix(err.Error(), "record: run directory "+dir+": open ") {
		t.Fatalf("got %v, want an error of TensorBoard's file", err)
	}
	r, past, err := Resume(dir, "# third", Provenance{}, From{Step: 5})
	expect.OK(t, err)
	defer r.Close()
	if got := strings.Join(steps(t, dir), " "); got != "0 1 2 3 4" || past.Restarts != 2 {
		t.Errorf("steps %s, %+v", got, past)
	}
	if got := lines(t, filepath.Join(dir, "config.1.toml")); got[0] != "# first" {
		t.Errorf("config.1.toml: %s", got)
	}
}

// TestResumeLeavesDamageOut: a line in the middle that is no value is left out, and told.
func TestResumeLeavesDamageOut(t *testing.T) {
	dir := killed(t, 6, false)
	path := filepath.Join(dir, MetricsFile)
	text, err := os.ReadFile(path)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(path, bytes.Replace(text, []byte(`"step":1`), []byte("\"st\x00"), 1), 0o666))
	r, past, err := Resume(dir, "", Provenance{}, From{Step: 5})
	expect.OK(t, err)
	defer r.Close()
	if got := strings.Join(steps(t, dir), " "); got != "0 2 3 4" || past.Damaged != 1 {
		t.Errorf("steps %s, %+v", got, past)
	}
}

// TestForceRemovesEarlierStarts: a run that is written over leaves no checkpoint from which
// the new one could go on, nor settings of its restarts.
func TestForceRemovesEarlierStarts(t *testing.T) {
	dir := killed(t, 10, false)
	r, _, err := Resume(dir, "", Provenance{}, From{Step: 5})
	expect.OK(t, err)
	expect.OK(t, r.Close())
	expect.OK(t, os.MkdirAll(filepath.Join(dir, CheckpointDir, "step_00000005"), 0o777))
	r, err = Replace(dir, "", Provenance{})
	expect.OK(t, err)
	defer r.Close()
	if got := names(t, dir); !slices.Equal(got, made) {
		t.Errorf("%v, want %v", got, made)
	}
}

func TestNewest(t *testing.T) {
	saved := func(dir string) bool {
		list, _ := filepath.Glob(filepath.Join(dir, CheckpointDir, "step_????????"))
		return list != nil
	}
	parent := t.TempDir()
	if dir, err := Newest(filepath.Join(parent, "none"), "demo", saved); dir != "" || err != nil {
		t.Errorf("%q, %v", dir, err)
	}
	for _, d := range []struct {
		name  string
		holds string
		run   string // the recorded name; "": no settings
	}{
		{"demo-20261122-092514", "step_00000001/manifest.json", "demo"},
		{"demo-20261122-092514-2", "step_00000002/manifest.json", "demo"},
		{"demo-20261122-092514-10", "step_00000001/manifest.json", "demo"},
		{"demo-20261122-092514-11", "step_00000001/manifest.json", ""},
		{"demo-20261123-092514", "step_00000001.tmp/manifest.json", "demo"},
		{"demo-20261124-092514", "", "demo"},
		{"demo-bpe-20261125-092514", "step_00000001/manifest.json", "demo bpe"},
		{"demo-bpe-20261125-092513", "step_00000001/manifest.json", "demo-bpe"},
		{"demo-20261126", "step_00000001/manifest.json", "demo"},
	} {
		path := filepath.Join(parent, d.name, CheckpointDir, d.holds)
		expect.OK(t, os.MkdirAll(filepath.Dir(path), 0o777))
		if d.holds != "" {
			expect.OK(t, os.WriteFile(path, nil, 0o666))
		}
		if d.run != "" {
			expect.OK(t, os.WriteFile(filepath.Join(parent, d.name, SettingsFile), []byte("[run]\nname = \""+d.run+"\"\n"), 0o666))
		}
	}
	for name, want := range map[string]string{
		"demo": "demo-20261122-092514-10", "demo-bpe": "demo-bpe-20261125-092513", "demo bpe": "demo-bpe-20261125-092514", "demo/bpe": "", "other": "",
	} {
		dir, err := Newest(parent, name, saved)
		if want != "" {
			want = filepath.Join(parent, want)
		}
		if dir != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, dir, err, want)
		}
	}
}

// TestResumeAfterAKill: whenever a process is killed that opens a run directory again, the
// next one finds all that the first would have kept. Its work is a sequence of files, each
// whole or not there.
func TestResumeAfterAKill(t *testing.T) {
	before := killed(t, 10, true)
	after := filepath.Join(t.TempDir(), "after")
	expect.OK(t, os.CopyFS(after, os.DirFS(before)))
	r, _, err := Resume(after, "# second", Provenance{}, From{Step: 5})
	expect.OK(t, err)
	expect.OK(t, r.CloseFiles())
	order := []string{EventsFile, MetricsFile, CostsFile, TraceFile, EventsFile, "config.1.toml", SettingsFile, "provenance.1.json", ProvenanceFile, SummaryFile}
	for n := range len(order) + 1 {
		dir := filepath.Join(t.TempDir(), "run")
		expect.OK(t, os.CopyFS(dir, os.DirFS(before)))
		for i, name := range order[:n] {
			text, err := os.ReadFile(filepath.Join(after, name))
			expect.OK(t, err)
			if i == 0 { // cut, but the restart is not told yet
				text = text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
			}
			expect.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o666))
		}
		r, past, err := Resume(dir, "# third", Provenance{}, From{Step: 5})
		expect.OK(t, err)
		expect.OK(t, r.Close())
		if got := strings.Join(steps(t, dir), " "); got != "0 1 2 3 4" || past.Last.Step != 4 {
			t.Errorf("killed after %d: steps %s, %+v", n, got, past)
		}
		if got, want := strings.Replace(holding(t, dir), "resume 5, resume 5", "resume 5", 1), "dynamic 3, checkpoint 5, resume 5, [0 +4], [4 +1]"; got != want {
			t.Errorf("killed after %d: %s, want %s", n, got, want)
		}
		list, err := filepath.Glob(filepath.Join(dir, "config.*.toml"))
		expect.OK(t, err)
		if !slices.ContainsFunc(list, func(path string) bool { return lines(t, path)[0] == "# first" }) {
			t.Errorf("killed after %d: no %v has the first settings", n, list)
		}
	}
}

// TestResumeRefusesFIFOs: a file of the run that is a FIFO is refused, and nothing waits for it.
func TestResumeRefusesFIFOs(t *testing.T) {
	for _, name := range []string{MetricsFile, EventsFile, CostsFile, TraceFile, SettingsFile, ProvenanceFile, SummaryFile} {
		dir := killed(t, 4, false)
		path := filepath.Join(dir, name)
		expect.OK(t, os.Remove(path))
		expect.OK(t, syscall.Mkfifo(path, 0o600))
		if _, _, err := Resume(dir, "# second", Provenance{}, From{}); err == nil || !strings.HasSuffix(err.Error(), name+": a FIFO, want a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// passed is a Fold that lists what it receives.
type passed []string

func (p *passed) Step(m Metrics) { *p = append(*p, fmt.Sprint(m.Step)) }
func (p *passed) Event(e Event)  { *p = append(*p, string(e.Kind)) }
func (p *passed) Costs(x Phase)  { *p = append(*p, fmt.Sprintf("[%d +%d]", x.Step, x.Steps)) }
