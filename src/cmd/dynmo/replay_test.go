package main

import (
	"os"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/lab/verdict"
)

// TestReplayedRun: every report of a run with forced loads mentions them, and reports no loss. The
// run cannot be exported. A wrong file is bad usage before any training. Figures can use its last
// phase.
func TestReplayedRun(t *testing.T) {
	t.Chdir(folder(t, ""))
	train := func(dir string) ended {
		return says(training(append(sets("run.clock=wall", "model.blocks=2", "model.hidden=16", "parallel.stages=2", "dynamic.kind=prune",
			"dynamic.replay=loads.jsonl", "checkpoint.every=6"), "--run-dir", dir)...)...)
	}
	expect.OK(t, os.WriteFile("loads.jsonl", []byte(`{"step":2,"layer":7,"density":0.5}`), 0o600))
	if e := train("wrong"); e.status != exitUsage || !strings.Contains(e.stderr, "loads.jsonl:1: layer: 7, want one of [1 2]") {
		t.Errorf("a layer that is not there: %+v", e)
	}
	expect.OK(t, os.WriteFile("loads.jsonl", []byte(`{"step":2,"layer":1,"density":0.5}`+"\n"+`{"step":2,"layer":2,"density":0.25}`+"\n"), 0o600))
	e := train("run")
	if e.status != exitDone || !strings.Contains(e.stderr+e.stdout, "replayed: no loss") || strings.Contains(e.stdout+e.stderr, "lm loss") {
		t.Fatalf("%+v", e)
	}
	s, err := verdict.ReadSummary("run")
	expect.OK(t, err)
	if !s.Replayed || s.Loss == s.Loss {
		t.Errorf("summary: %+v", s)
	}
	says("ckpt", "export", "run", "-o", "hf").refused(t, exitUsage, "run: a model of a replayed run (dynamic.replay)")
	if e := says("report", "run", "-o", "page.html"); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	says("figures", "--collect", "fig3-tiny", "--results", ".", "run", "wrong").refused(t, exitUsage, "wrong: no run lies there")
	if kept := read(t, "executed/fig3-tiny.json"); !strings.Contains(kept, `"kind":"prune","balancer":"partition by time","moves":true,"replayed":true,"blocks":2,"stages":2,"replicas":1,"delay":1,"step":`) {
		t.Errorf("kept %s", kept)
	}
	says("figures", "--collect", "fig2", "--results", ".", "run").refused(t, exitUsage, `name: "fig2", want FIGURE-WORDS`)
	page, err := os.ReadFile("page.html")
	expect.OK(t, err)
	if text := string(page); !strings.Contains(text, "replayed") || strings.Contains(text, "final loss") {
		t.Error("the report does not say that the run is replayed, or has a loss")
	}
}
