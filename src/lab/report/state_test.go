package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestTornFirstLine: a file of costs with nothing else is as good as none.
func TestTornFirstLine(t *testing.T) {
	dir := small.write(t)
	expect.OK(t, os.WriteFile(filepath.Join(dir, record.CostsFile), []byte(`{"step":0,"lay`), 0o666))
	r, err := ReadAll(dir)
	if err != nil || len(r.Notes) != 1 || r.Costs != nil {
		t.Errorf("notes %q, costs %v, %v", r.Notes, r.Costs, err)
	}
}

// TestTornLines: what a killed run or a full disk leaves at the end of a file is
// left out and noted on the page.
func TestTornLines(t *testing.T) {
	for _, c := range []struct{ name, file, tail, note string }{
		{"half a line", record.MetricsFile, `{"step":40,"loss":`, "metrics.jsonl:41: the last line is torn and left out"},
		{"zeros", record.EventsFile, "\x00\x00\x00", "events.jsonl:3: the last line is torn and left out"},
		{"half an event", record.TraceFile, ",\n{\"name\":\"F", ": the last line is torn and left out"},
		{"half a line that ends", record.CostsFile, "{\"step\":40,\n", "costs.jsonl:4: the last line is torn and left out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := small.write(t)
			f, err := os.OpenFile(filepath.Join(dir, c.file), os.O_APPEND|os.O_WRONLY, 0)
			expect.OK(t, err)
			_, err = f.WriteString(c.tail)
			expect.OK(t, err)
			expect.OK(t, f.Close())
			r, err := ReadAll(dir)
			expect.OK(t, err)
			if len(r.Metrics) != small.steps || len(r.Events) != 2 || len(r.Costs) != 3 {
				t.Errorf("%d steps, %d events, %d phases; want %d, 2, 3", len(r.Metrics), len(r.Events), len(r.Costs), small.steps)
			}
			if text := render(t, r); !strings.Contains(text, c.note) {
				t.Errorf("no %q on the page", c.note)
			}
		})
	}
}

func TestState(t *testing.T) {
	for _, c := range []struct {
		name, summary string
		steps         int // of 40
		want          string
	}{
		{"finished", `{"status":"finished"}`, 40, ""},
		{"unfinished, its file claimed", "empty", 30, "This run is unfinished: 30 of 40 steps are recorded. It still trains, or was killed."},
		{"finished early", `{"status":"finished"}`, 30, ""},
		{"finished, of an older version", "", 40, ""},
		{"unfinished", "", 30, "This run is unfinished: 30 of 40 steps are recorded. It still trains, or was killed."},
		{"stopped", `{"status":"stopped"}`, 30, "This run was stopped after 30 of 40 steps."},
		{"failed", `{"status":"failed","error":"rank 1 died"}`, 30, "This run failed after 30 of 40 steps: rank 1 died"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := small.write(t)
			if c.summary != "" {
				expect.OK(t, os.WriteFile(filepath.Join(dir, record.SummaryFile), []byte(strings.TrimPrefix(c.summary, "empty")), 0o666))
			}
			r, err := ReadAll(dir)
			expect.OK(t, err)
			r.Metrics = r.Metrics[:c.steps]
			if got := r.state(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if c.want != "" && !strings.Contains(render(t, r), `role="alert">`+c.want) {
				t.Error("the page does not say so")
			}
		})
	}
}
