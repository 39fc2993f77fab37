package verdict

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestTally: layers move after step 2 and the model changes before step 5. So three steps are
// before the move and two are in the last segment, of which the later one counts. Without a move five steps are
// before the change.
func TestTally(t *testing.T) {
	var still, moved Tally
	for step, seconds := range []record.Float{3, 5, 4, 2, 2, 1, 1.5} {
		m := record.Metrics{Step: step, Clock: "virtual", Loss: record.Float(9 - step), StepSeconds: seconds, Cuts: []int{0, 1, 3}}
		if step == 5 {
			still.Event(record.Event{Step: step, Kind: record.Dynamic})
			moved.Event(record.Event{Step: step, Kind: record.Dynamic})
		}
		still.Step(m)
		if step%2 > 0 {
			m.ValidationLoss = record.Float(10 - step)
		}
		if step > 2 {
			m.Cuts = []int{0, 2, 3}
		}
		moved.Step(m)
	}
	last := Pace{2, 1.5, "virtual"}
	if diff := cmp.Diff(Summary{Status: Finished, Steps: 7, Loss: 3, ValidationLoss: 5, Before: Pace{3, 4, "virtual"}, After: last}, moved.Summary(Finished, config.Default(), nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Summary{Status: Failed, Error: "disk", Steps: 7, Loss: 3, Before: Pace{5, 3, "virtual"}, After: last}, still.Summary(Failed, config.Default(), errors.New("disk"))); diff != "" {
		t.Error(diff)
	}
	if w := moved.Worth(config.Default()); w != nil {
		t.Errorf("%+v of no costs", w)
	}
}

// TestTallyIsBounded: the median of a long run is that of its latest steps.
func TestTallyIsBounded(t *testing.T) {
	var tally Tally
	for step := range 10 * MostPaces {
		tally.Step(record.Metrics{Step: step, StepSeconds: record.Float(step / MostPaces)})
	}
	if s := tally.Summary(Finished, config.Default(), nil); s.Before.Seconds != 9 || s.Before.Steps != 10*MostPaces || len(tally.before.seconds) != MostPaces {
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
	want := Summary{Status: Failed, Error: "step 3: <no> memory", Steps: 3, Loss: 2.5, Peak: &Peak{Sgemm, 9e10}, Worth: &Result{Speedup: 1.5, Moved: true}}
	expect.OK(t, want.Write(dir))
	got, err = ReadSummary(dir)
	expect.OK(t, err)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v beside the summary", files)
	}
	path := filepath.Join(dir, record.SummaryFile)
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

func TestMoves(t *testing.T) {
	move := func(step int, before, predicted, after record.Float) record.Event {
		return record.Event{Step: step, Kind: record.Balance, Bytes: 1, Before: before, Predicted: predicted, After: after}
	}
	undone := move(9, 1, 0.5, 2)
	undone.Detail = map[string]any{"undone": true}
	for _, c := range []struct {
		name   string
		events []record.Event
		count  int
		want   string
	}{
		{"none", nil, 0, ""},
		{"one that paid less than predicted", []record.Event{move(3, 1, 0.5, 0.9)}, 1, ""},
		{"one that did not pay", []record.Event{move(7, 1.28, 1, 1.32)}, 1,
			"1 of 1 move did not pay: after step 7 steps were predicted 1.28x as fast and measured 0.97x"},
		{"the one that fell short the most is named", []record.Event{move(3, 1, 0.9, 1), move(5, 1, 0.5, 1.25), move(7, 1, 0.8, 0.8)}, 3,
			"2 of 3 moves did not pay: after step 5 steps were predicted 2.00x as fast and measured 0.80x"},
		{"one that was not measured", []record.Event{move(3, 1, 0.9, 0), move(5, 1, 0.5, 0.5)}, 2,
			"1 of 2 moves not measured: the model changed or the run ended first"},
		{"orders of work, moves back and moves for memory promise nothing", []record.Event{{Kind: record.Balance, Before: 1, Predicted: 0.5, After: 2}, undone, move(3, 1, 1.5, 2)}, 0, ""},
	} {
		var tally Tally
		for _, e := range c.events {
			tally.Event(e)
		}
		m := tally.Summary(Finished, config.Default(), nil).Moves
		if m == nil {
			m = new(Moves)
		}
		if got := m.String(); got != c.want || m.Count != c.count {
			t.Errorf("%s: %d moves, %q, want %d, %q", c.name, m.Count, got, c.count, c.want)
		}
	}
}
