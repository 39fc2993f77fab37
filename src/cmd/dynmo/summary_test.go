package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/lab/report"
	"dynmo/src/lab/verdict"
	"dynmo/src/train"
)

// tiny returns a settings file of a short run, and its run directory.
func tiny(t *testing.T) (file, dir string) {
	t.Helper()
	folder := t.TempDir()
	text, file := filepath.Join(folder, "text.txt"), filepath.Join(folder, "run.toml")
	write(t, text, strings.Repeat("the quick brown fox jumps over the lazy dog; ", 50))
	c := config.Default()
	c.Data.Path, c.Data.Extensions = text, nil
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence, c.Model.Vocab = 6, 8, 1, 8, 256
	c.Parallel.Stages, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = 2, 4, 1
	c.Balance.Kind, c.Balance.By, c.Balance.Every = "partition", "param", "2"
	c.Dynamic.Kind = "prune"
	c.Assign("prune.start", 3, "prune.every", 2, "prune.times", 2)
	c.Run.Clock, c.Train.Steps, c.Train.Hash, c.Device.Kernel = "wall", 10, true, "ref"
	write(t, file, c.TOML())
	return file, filepath.Join(folder, "run")
}

// TestTrainSumsUp: a finished run has a summary with the value of moving layers, and prints it
// last. table computes the same from the costs.
func TestTrainSumsUp(t *testing.T) {
	file, dir := tiny(t)
	e := says("train", file, "--run-dir", dir)
	if e.status != exitDone {
		t.Fatalf("status %d: %s", e.status, e.stderr)
	}
	s, err := verdict.ReadSummary(dir)
	expect.OK(t, err)
	if s == nil || s.Status != verdict.Finished || s.Steps != 10 || len(s.Hash) != 64 || !strings.Contains(e.stdout, s.Hash) ||
		s.Before.Clock != "wall" || s.Before.Seconds <= 0 || s.After.Clock != "wall" || s.After.Seconds <= 0 {
		t.Errorf("%+v, stdout %q", s, e.stdout)
	}
	if w := s.Worth; w == nil || w.Steps != 10 || w.Draws == 0 || w.Low > w.High || w.Ceiling < 1 || w.Price <= 0 {
		t.Errorf("worth %+v", w)
	}
	for _, want := range []string{"simulated from the measured layer costs: ", "measured step, median: ", "(clock=wall)\n"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("%q is not in\n%s", want, e.stderr)
		}
	}
	row := decodedLines[map[string]any](t, said(t, "table", dir, "--json"))[0]
	if row["before_seconds"] != float64(s.Before.Seconds) || row["after_seconds"] != float64(s.After.Seconds) {
		t.Errorf("step times of the table %v, %v, of the summary %+v, %+v", row["before_seconds"], row["after_seconds"], s.Before, s.After)
	}
	if table := said(t, "table", dir); !strings.Contains(table, "speedup  ") || !strings.Contains(table, "x  ") {
		t.Errorf("no worth in\n%s", table)
	}
}

// TestOneStageSumsUp: a run on one stage, where no layer can move, prints its step time too.
func TestOneStageSumsUp(t *testing.T) {
	file, dir := tiny(t)
	e := says("train", file, "--run-dir", dir, "--set", "parallel.stages=1", "--set", "dynamic.kind=none")
	s, err := verdict.ReadSummary(dir)
	expect.OK(t, err)
	if e.status != exitDone || strings.Count(e.stderr, "measured step, median: "+measuredSteps(*s)+"\n") != 1 || strings.Contains(e.stderr, "layer costs") {
		t.Errorf("status %d, summary %+v: %s", e.status, s, e.stderr)
	}
}

// TestPackedRunSumsUp: a run that is packed onto fewer ranks states the result of packing at its
// end. So do its summary, its table, its output for programs, and its report. A run that was never
// packed says so.
func TestPackedRunSumsUp(t *testing.T) {
	file, dir := tiny(t)
	e := says("train", file, "--run-dir", dir, "--set", "repack.kind=first-fit", "--set", "balance.memory_limit_bytes=1000000000", "--set", "train.steps=20", "--set", "run.clock=virtual") // the virtual clock has meaningful times on a busy host
	const want = "packed from 2 ranks to 1; on average 1."
	if e.status != exitDone || strings.Count(e.stderr, want) != 1 || !strings.Contains(e.stderr, "static placement without packing") {
		t.Fatalf("status %d, want one sentence of packing: %s", e.status, e.stderr)
	}
	s, err := verdict.ReadSummary(dir)
	expect.OK(t, err)
	if p := s.Packing; p == nil || p.RanksFirst != 2 || p.RanksLast != 1 || p.MeanRanks <= 1 || p.MeanRanks >= 2 || p.Throughput <= 0 || p.FreeRankSeconds <= 0 || len(p.Segments) != 2 {
		t.Errorf("packing %+v", s.Packing)
	}
	if table := said(t, "table", dir); !strings.Contains(table, "\n"+want) || !strings.Contains(table, "2 to 1") || !strings.Contains(table, report.PackingLegend) {
		t.Errorf("no packing in\n%s", table)
	}
	row := decodedLines[map[string]any](t, said(t, "table", dir, "--json"))[0]
	if row["ranks_first"] != 2. || row["ranks_last"] != 1. || row["packings"] != 1. || row["node_hours_given_back"] != 0. || row["throughput"] == nil {
		t.Errorf("for programs: %v", row)
	}
	if page := said(t, "report", dir, "-o", "-"); !strings.Contains(page, "Ranks: <b>"+want) {
		t.Error("the page does not say what packing came to")
	}
	e = says("train", file, "--run-dir", dir, "--force", "--set", "repack.kind=first-fit", "--set", "balance.memory_limit_bytes=1000000000", "--set", "repack.below=0.1")
	if !strings.Contains(e.stderr, report.Unpacked+"\n") {
		t.Errorf("a run that was not packed: %s", e.stderr)
	}
}

// TestTrainSumsUpFailures: the summary of a failed run reports the failure, and no value of moves.
func TestTrainSumsUpFailures(t *testing.T) {
	file, dir := tiny(t)
	e := says("train", file, "--run-dir", dir, "--set", "optimizer.lr=1e30", "--set", "optimizer.warmup=0", "--set", "optimizer.clip=0")
	s, err := verdict.ReadSummary(dir)
	expect.OK(t, err)
	if e.status != exitDiverged || s == nil || s.Status != verdict.Diverged || !strings.Contains(s.Error, "train.on_nan") || s.Worth != nil {
		t.Errorf("status %d, %q: %+v", e.status, e.stderr, s)
	}
	stopped := &watcher{out: io.Discard, dir: t.TempDir()}
	stopped.sumUp(train.Outcome{Stopped: true}, nil)
	if s, err := verdict.ReadSummary(stopped.dir); err != nil || s == nil || s.Status != verdict.Stopped {
		t.Errorf("%+v, %v of a run that was stopped", s, err)
	}
}

// TestTrainSaysWhatWouldGain: a run whose layers never moved, though others would be faster, names settings
// with their factor in log, summary and page. A run that gained from moving layers does not.
func TestTrainSaysWhatWouldGain(t *testing.T) {
	file, dir := tiny(t)
	still := []string{"train", file, "--run-dir", dir, "--set", "balance.kind=uniform", "--set", "dynamic.kind=none", "--set", "model.blocks=5", "--set", "run.clock=virtual"}
	e := says(still...)
	const want = "predicted to gain: --set "
	if e.status != exitDone || strings.Count(e.stderr, want) != 1 || !strings.Contains(e.stderr, ". `dynmo plan "+dir+"/config.toml --costs "+dir+"/costs.jsonl` shows more\n") {
		t.Fatalf("status %d, want %q: %s", e.status, want, e.stderr)
	}
	s, err := verdict.ReadSummary(dir)
	expect.OK(t, err)
	if !strings.HasPrefix(s.WouldGain, want) {
		t.Errorf("the summary says %q", s.WouldGain)
	}
	if page := said(t, "report", dir, "-o", "-"); !strings.Contains(page, "Predicted to gain: --set ") {
		t.Error("the page does not say what would gain")
	}
	if list := decodedLines[map[string]any](t, said(t, "plan", dir+"/config.toml", "--costs", dir+"/costs.jsonl", "--json")); len(list) != 1 {
		t.Errorf("the command that the log names answers %v", list)
	}
	w := watcher{settings: config.Default()}
	for _, s := range []verdict.Summary{
		{Status: verdict.Finished, Worth: &verdict.Result{Moved: true, Speedup: 1.5, Low: 1.4, High: 1.6, Draws: 9}},
		{Status: verdict.Finished, Worth: &verdict.Result{Speedup: 1, Doubt: "crowded"}},
		{Status: verdict.Stopped, Worth: &verdict.Result{Speedup: 1}},
		{Status: verdict.Finished, Worth: &verdict.Result{Speedup: 1}}, // no costs
	} {
		if got := w.wouldGain(s); got != "" {
			t.Errorf("%+v: %q", s.Worth, got)
		}
	}
	if got := gainsText(nil); !strings.HasPrefix(got, "nothing that was tried would make a step 1 % faster") {
		t.Errorf("%q", got)
	}
}
