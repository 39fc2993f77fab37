package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// recorded writes a run directory with the given steps.
func recorded(t *testing.T, steps ...record.Metrics) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	run, err := record.Open(dir, config.Default().TOML(), record.Provenance{})
	expect.OK(t, err)
	for _, step := range steps {
		expect.OK(t, run.Step(step))
	}
	expect.OK(t, run.Close())
	return dir
}

func TestReport(t *testing.T) {
	dir := recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1})
	empty, damaged := t.TempDir(), filepath.Join(t.TempDir(), "damaged")
	expect.OK(t, os.CopyFS(damaged, os.DirFS(dir)))
	expect.OK(t, os.WriteFile(filepath.Join(damaged, "metrics.jsonl"), []byte("{}\n{\"loss\":\"much\"}\n"), 0o600))
	without := func(name string) string {
		t.Helper()
		less := filepath.Join(t.TempDir(), "less")
		expect.OK(t, os.CopyFS(less, os.DirFS(dir)))
		expect.OK(t, os.Remove(filepath.Join(less, name)))
		return less
	}
	broken := without("provenance.json")
	expect.OK(t, os.WriteFile(filepath.Join(broken, "provenance.json"), []byte("{"), 0o600))
	page := filepath.Join(t.TempDir(), "run.html")
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string // part of the error
	}{
		{"a run", []string{dir, "-o", page}, exitDone, ""},
		{"no page wanted", []string{dir}, exitUsage, `required flag(s) "output" not set`},
		{"no run", []string{empty, "-o", page}, exitUsage, empty + ": no run lies there (config.toml is missing), want a directory that dynmo train CONFIG --run-dir DIR has filled"},
		{"no directory", []string{filepath.Join(empty, "run"), "-o", page}, exitUsage, filepath.Join(empty, "run") + ": no run lies there (config.toml is missing)"},
		{"no metrics", []string{without("metrics.jsonl"), "-o", page}, exitUsage, "metrics.jsonl: no such file"},
		{"no events", []string{without("events.jsonl"), "-o", page}, exitUsage, "events.jsonl: no such file"},
		{"damaged provenance", []string{broken, "-o", page}, exitUsage, "provenance.json: unexpected end"},
		{"a damaged line", []string{damaged, "-o", page}, exitUsage, filepath.Join(damaged, "metrics.jsonl") + ":2: "},
		{"several runs", []string{dir, broken + "/../less", "-o", page}, exitUsage, "provenance.json: unexpected end"},
		{"one run twice", []string{dir, dir, "-o", page}, exitUsage, dir + ": given twice"},
		{"a page nowhere", []string{dir, "-o", filepath.Join(empty, "no", "run.html")}, exitFailure, "--output: open " + filepath.Join(empty, "no", "run.html")},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := says(append([]string{"report", "--force"}, c.args...)...)
			if e.status != c.status {
				t.Errorf("status %d, want %d", e.status, c.status)
			}
			if told := e.stderr; !strings.Contains(told, c.want) || strings.Count(told, "\n") > 1 || (told == "") != (c.status == exitDone) {
				t.Errorf("told %q, want one line …%s…", told, c.want)
			}
		})
	}
	text := read(t, page)
	if !strings.Contains(text, "<b>wall clock</b>") {
		t.Error("the page does not name the clock")
	}
	other := recorded(t, record.Metrics{Clock: "wall", Loss: 4.5, StepSeconds: 1})
	if text := said(t, "report", dir, other, "-o", "-"); !strings.Contains(text, "<h1>2 runs compared</h1>") {
		t.Error("the page does not compare two runs")
	}
}
