package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/plan/worth"
)

// TestTally: layers move behind step 2 and the model changes before step 5, so that
// three steps are before and the last two at the end.
func TestTally(t *testing.T) {
	var still, moved Tally
	for step, seconds := range []Float{3, 5, 4, 2, 2, 1, 1.5} {
		m := Metrics{Step: step, Clock: "virtual", Loss: Float(9 - step), StepSeconds: seconds, Cuts: []int{0, 1, 3}}
		if step == 5 {
			still.Event(Event{Step: step, Kind: Dynamic})
			moved.Event(Event{Step: step, Kind: Dynamic})
		}
		still.Step(m)
		if step%2 > 0 {
			m.ValidationLoss = Float(10 - step)
		}
		if step > 2 {
			m.Cuts = []int{0, 2, 3}
		}
		moved.Step(m)
	}
	last := Pace{2, 1.25, "virtual"}
	if diff := cmp.Diff(Summary{Status: Finished, Steps: 7, Loss: 3, ValidationLoss: 5, Before: Pace{3, 4, "virtual"}, After: last}, moved.Summary(Finished)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Summary{Status: Stopped, Steps: 7, Loss: 3, Before: Pace{7, 2, "virtual"}, After: last}, still.Summary(Stopped)); diff != "" {
		t.Error(diff)
	}
	if w := moved.Worth(config.Default()); w != nil {
		t.Errorf("%+v of no costs", w)
	}
}

// TestTallyIsBounded: the median of a long run is that of its latest steps.
func TestTallyIsBounded(t *testing.T) {
	var tally Tally
	for step := range 10 * mostPaces {
		tally.Step(Metrics{Step: step, StepSeconds: Float(step / mostPaces)})
	}
	if s := tally.Summary(Finished); s.Before.Seconds != 9 || s.Before.Steps != 10*mostPaces || len(tally.before.seconds) != mostPaces {
		t.Errorf("%+v of %d steps that are kept", s.Before, len(tally.before.seconds))
	}
}

func TestSummaryFile(t *testing.T) {
	dir := t.TempDir()
	got, err := ReadSummary(dir)
	expect.OK(t, err)
	if got != nil {
		t.Errorf("%+v of a run that has not ended", got)
	}
	want := Summary{Status: Failed, Error: "step 3: <no> memory", Steps: 3, Loss: 2.5, Worth: &worth.Result{Speedup: 1.5, Moved: true}}
	expect.OK(t, want.Write(dir))
	got, err = ReadSummary(dir)
	expect.OK(t, err)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v beside the summary", files)
	}
	path := filepath.Join(dir, SummaryFile)
	for text, refused := range map[string]string{"": "", "{\"status\":": path + ": unexpected end"} {
		expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := ReadSummary(dir)
		if refused == "" && (got != nil || err != nil) || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%q: %+v, %v; want …%s…", text, got, err, refused)
		}
	}
	if err := want.Write(filepath.Join(dir, "absent")); err == nil {
		t.Error("written into no directory")
	}
}
