package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestReadersAgreeOnDamage: every command that reads a checkpoint refuses it where one of its
// files is missing, cut short or has a flipped bit.
func TestReadersAgreeOnDamage(t *testing.T) {
	t.Chdir(folder(t, ""))
	run := append(sets("run.clock=wall", "model.blocks=2", "model.hidden=16", "parallel.stages=1", "parallel.replicas=2", "model.family=llama",
		"dynamic.kind=moe", "moe.experts=2", "parallel.experts=spread", "train.steps=2", "checkpoint.every=2"), "--run-dir", "run")
	if e := says(training(run...)...); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	dir := filepath.Join("run", record.CheckpointDir, checkpoint.Name(2))
	readers := [][]string{
		{"ckpt", "verify", "run"},
		{"ckpt", "verify", dir},
		{"ckpt", "export", "run", "-o", "model"},
		{"sample", "run", "--prompt", "the", "--tokens", "1"},
		training(append(run, "--resume")...),
	}
	files, err := os.ReadDir(dir)
	expect.OK(t, err)
	kinds := map[string]bool{}
	for _, f := range files {
		kinds[f.Name()[:3]] = true
		path := filepath.Join(dir, f.Name())
		was, err := os.ReadFile(path)
		expect.OK(t, err)
		half := len(was) / 2
		damaged := map[string][]byte{"missing": nil, "flipped": append([]byte(nil), was...)}
		damaged["flipped"][half] ^= 1
		for _, n := range []int{0, 1, half, len(was) - 1} {
			damaged[fmt.Sprintf("cut to %d", n)] = was[:n]
		}
		for what, text := range damaged {
			expect.OK(t, os.RemoveAll(path))
			if what != "missing" {
				expect.OK(t, os.WriteFile(path, text, 0o600))
			}
			if c, _, err := checkpoint.Newest("run"); err == nil {
				t.Errorf("%s %s: %s is the newest whole checkpoint", f.Name(), what, c.Dir)
			}
			for _, args := range readers {
				if f.Name() == checkpoint.ManifestFile && what == "missing" && args[len(args)-1] == dir {
					continue // no checkpoint, but a run directory without any
				}
				if e := says(args...); e.status != exitUsage {
					t.Errorf("%s %s: %v: status %d: %s%s", f.Name(), what, args[:2], e.status, e.stdout, e.stderr)
				}
			}
		}
		expect.OK(t, os.WriteFile(path, was, 0o600))
	}
	for _, kind := range []string{"lay", "man", "own", "run", "sta"} {
		if !kinds[kind] {
			t.Errorf("no file %s… among %v", kind, kinds)
		}
	}
	for _, args := range readers {
		if e := says(args...); e.status != exitDone {
			t.Errorf("whole: %v: %+v", args[:2], e)
		}
	}
}
