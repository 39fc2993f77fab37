package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/record"
	"dynmo/src/tensor"
)

// savedRun trains a model in two stages with two slices of the head. 85 % of the model is pruned
// and stored as CSR. It returns the run directory with checkpoints of 6 and 12 steps.
func savedRun(t *testing.T) string {
	t.Helper()
	t.Chdir(folder(t, ""))
	if e := says(training(append(sets("run.clock=wall", "model.blocks=2", "model.hidden=16", "model.head_shards=2", "parallel.stages=2",
		"optimizer.lr=1e-2", "dynamic.kind=prune", "prune.start=3", "prune.every=3", "prune.times=1", "prune.initial=0.5", "prune.final=0.85",
		"prune.csr_from=0.7", "checkpoint.every=6"), "--run-dir", "run")...)...); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	return "run"
}

// trainedLoss returns the sum of the losses of a text's tokens, from the forward of training on the
// layers of a checkpoint.
func trainedLoss(t *testing.T, dir, text string) float64 {
	t.Helper()
	one, err := checkpoint.Open(dir)
	expect.OK(t, err)
	settings, _, err := one.Config()
	expect.OK(t, err)
	shape, dev := model.FromConfig(settings), cpu.New(device.NewWall())
	var tokens []int32
	for _, b := range []byte(text) {
		tokens = append(tokens, int32(b))
	}
	x := &model.Exec{Device: dev, Backend: ref.New(tensor.F32), Stream: dev.NewStream(), B: 1, T: len(text) - 1, Scale: 1}
	expect.OK(t, x.Reserve(shape))
	out, loss, sparse := tensor.Mem{}, 0.0, false
	for id := range one.Layers {
		l, err := one.Layer(id, shape, dev, tensor.F32)
		expect.OK(t, err)
		sparse = sparse || slices.ContainsFunc(l.Params(), func(p *model.Param) bool { return p.Format == model.CSR })
		kept, err := dev.Alloc(l.Sizes(x).Kept)
		expect.OK(t, err)
		saved := model.Saved{Kept: kept}
		l.Feed(x, &x.Full, saved, tokens[:len(tokens)-1], tokens[1:])
		expect.OK(t, l.Forward(x, &x.Full, saved, out))
		if out = l.Output(x, &x.Full, saved); id == one.Layers-1 {
			loss = tensor.Of[float64](l.Reading(x, &x.Full, saved, 0))[0]
		}
	}
	if !sparse {
		t.Error("no layer is stored as CSR")
	}
	return loss
}

// A program that shares nothing with dynmo reads a run's exported model. Its loss is that of the
// trainer's own forward on the checkpoint, and its next token is that of dynmo sample.
func TestExportIsTheModel(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	reader, err := filepath.Abs("testdata/gpt2.py")
	expect.OK(t, err)
	run := savedRun(t)
	const text = "the lazy brown d"
	want := "hf: the model of run/ckpt/step_00000012 after 12 steps\n"
	if out := said(t, "ckpt", "export", run, "-o", "hf"); out != want {
		t.Errorf("export says %q, want %q", out, want)
	}
	out, err := exec.Command(python, reader, "hf", text).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s", failed.Stderr)
	}
	expect.OK(t, err)
	var read struct {
		Tokens      []int
		Loss, Zeros float64
		Next        int
	}
	expect.OK(t, json.Unmarshal(out, &read))
	if loss := trainedLoss(t, filepath.Join(run, record.CheckpointDir, checkpoint.Name(12)), text); math.Abs(read.Loss-loss) > 1e-4 {
		t.Errorf("loss %v, the trainer's %v", read.Loss, loss)
	}
	if read.Zeros < 0.84 || read.Zeros > 0.86 || len(read.Tokens) != len(text) || read.Tokens[1] != 'h' {
		t.Errorf("%+v", read)
	}
	next := decoded[sampled](t, "sample", "hf", "--prompt", text, "--tokens", "1", "--temperature", "0")
	if next.Text != string(rune(read.Next)) || next.PromptTokens != len(text) || next.Tokens != 1 {
		t.Errorf("sample says %+v, the reader %d", next, read.Next)
	}
}

// TestCheckpointsOfARun: damage is reported with file and reason. An older checkpoint is used
// instead if there is one. An export is complete or does not exist.
func TestCheckpointsOfARun(t *testing.T) {
	run := savedRun(t)
	newest, oldest := "run/ckpt/step_00000012", "run/ckpt/step_00000006"
	out := said(t, "ckpt", "verify", run)
	if !strings.HasPrefix(out, newest+": whole: 12 steps done, 5 layers, 11 files, ") || !strings.Contains(out, "\n"+oldest+": whole: 6 steps done") {
		t.Errorf("verify says %s", out)
	}
	said(t, "ckpt", "verify", newest)
	for _, c := range []struct{ args, want string }{
		{"verify .", ".: no checkpoint in it: want a run directory"},
		{"export . -o new", ".: no checkpoint in it"},
		{"export run -o new --step 7", "--step 7: no such checkpoint in run, there are 12, 6"},
		{"export run -o new --step -2", "--step -2: want at least 0"},
		{"export " + newest + " -o new --step 6", "--step 6: run/ckpt/step_00000012 is of step 12"},
		{"export run.toml -o new --step 6", "--step 6: run.toml is no run directory"},
		{"export nothing -o new", "nothing: no such file"},
		{"export run -o run", "run exists: --force"},
		{"export run -o new --dtype float64", `--dtype "float64", want float32, bfloat16, float16`},
	} {
		ckpt(strings.Fields(c.args)...).refused(t, exitUsage, c.want)
	}
	said(t, "ckpt", "export", oldest, "-o", "older")
	said(t, "ckpt", "export", run, "--step", "6", "-o", "six")
	same(t, "older", "six")

	layer := filepath.Join(newest, "layer-00002.safetensors")
	weights, err := os.ReadFile(layer)
	expect.OK(t, err)
	weights[len(weights)/2] ^= 1
	expect.OK(t, os.WriteFile(layer, weights, 0o600))
	const why = "checkpoint run/ckpt/step_00000012: layer-00002.safetensors: SHA-256"
	if e := ckpt("verify", run); e.status != exitUsage || !strings.HasPrefix(e.stderr, "dynmo: "+why) || !strings.HasPrefix(e.stdout, oldest+": whole") || len(e.errors()) != 1 {
		t.Errorf("verify of a run whose newest checkpoint is damaged: %+v", e)
	}
	ckpt("verify", newest).refused(t, exitUsage, why)
	ckpt("export", newest, "-o", "new").refused(t, exitUsage, why)
	ckpt("export", run, "--step", "12", "-o", "new").refused(t, exitUsage, why)
	if e := ckpt("export", run, "-o", "stepped"); e.status != exitDone || !strings.HasPrefix(e.stderr, "note: skipped: "+why) || !strings.Contains(e.stdout, "after 6 steps") {
		t.Errorf("export of a run whose newest checkpoint is damaged: %+v", e)
	}
	same(t, "older", "stepped")
	expect.OK(t, os.Truncate(filepath.Join(oldest, checkpoint.ManifestFile), 100))
	ckpt("export", run, "-o", "new").refused(t, exitUsage, "run/ckpt: no whole checkpoint (2 damaged)")
	if e := ckpt("verify", run); e.status != exitUsage || e.stdout != "" || len(e.errors()) != 2 {
		t.Errorf("verify of two that are damaged: %+v", e)
	}
	if left, _ := filepath.Glob("*new*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestExportOfAnotherModel: a model that is not a GPT-2 chain cannot be exported as GPT-2 by
// leaving out layers.
func TestExportOfAnotherModel(t *testing.T) {
	t.Chdir(folder(t, ""))
	for _, kind := range []string{"attention", "mod"} {
		if e := says(training(append(sets("run.clock=wall", "model.blocks=2", "model.hidden=16", "parallel.stages=1", "train.steps=1",
			"dynamic.kind="+kind, "attention.buckets=4", "checkpoint.every=1"), "--run-dir", kind)...)...); e.status != exitDone {
			t.Fatalf("%+v", e)
		}
	}
	ckpt("export", "attention", "-o", "new").refused(t, exitUsage, `attention.keys = "shared": no other program makes keys of queries, want the model of a run with attention.keys = "own"`)
	if e := ckpt("export", "mod", "-o", "hf"); e.status != exitDone || !strings.Contains(e.stderr, "note: the second block") {
		t.Errorf("%+v", e)
	}
	if names, err := os.ReadFile("hf/DYNMO.md"); err != nil || !strings.Contains(string(names), "| block.1/depths.router.weight | [1 16] |") {
		t.Errorf("%s, %v", names, err)
	}
	if e := says("sample", "attention", "--prompt", "a", "--tokens", "3"); e.status != exitDone || !strings.Contains(e.stderr, " tokens/s, 2.00 of 2 blocks per token\n") {
		t.Errorf("%+v", e)
	}
	if e := says("sample", "mod", "--prompt", "a", "--tokens", "3"); e.status != exitDone || !strings.Contains(e.stderr, "note: mod.route = topk chose tokens by all of a sequence") {
		t.Errorf("%+v", e)
	}
}

// same fails the test unless two directories have equal files.
func same(t *testing.T, a, b string) {
	t.Helper()
	files, err := os.ReadDir(a)
	expect.OK(t, err)
	for _, f := range files {
		x, err := os.ReadFile(filepath.Join(a, f.Name()))
		expect.OK(t, err)
		if y, err := os.ReadFile(filepath.Join(b, f.Name())); err != nil || string(x) != string(y) {
			t.Errorf("%s: %s and %s differ (%v)", f.Name(), a, b, err)
		}
	}
	if len(files) != 7 {
		t.Errorf("%s: %v", a, files)
	}
}
