package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/sample"
)

// python returns an interpreter with PyTorch, or else with NumPy, and its environment.
// testdata/numpy implements the part of PyTorch that the reference needs on NumPy.
func python(t *testing.T) (interpreter string, environment []string) {
	t.Helper()
	numpy, err := filepath.Abs("testdata/numpy")
	expect.OK(t, err)
	for _, c := range []struct{ module, path string }{{"torch", ""}, {"numpy", numpy}} {
		for _, name := range []string{"python3", "/usr/bin/python3"} {
			if exec.Command(name, "-c", "import "+c.module).Run() == nil {
				t.Logf("%s with %s", name, c.module)
				return name, append(os.Environ(), "PYTHONPATH="+c.path)
			}
		}
	}
	t.Skip("python3 has neither torch nor numpy: the exported reference is not checked")
	return "", nil
}

// TestReferenceGivesOurLogits: dynmo_reference.py beside an exported model finds the same logits
// and the same exits as dynmo sample.
func TestReferenceGivesOurLogits(t *testing.T) {
	interpreter, environment := python(t)
	t.Chdir(folder(t, ""))
	small := sets("run.clock=wall", "model.blocks=4", "model.hidden=16", "model.heads=2", "model.sequence=16", "parallel.stages=1", "train.steps=8", "optimizer.lr=0.03",
		"optimizer.warmup=0", "exit.after=1,3", "checkpoint.every=end")
	for name, more := range map[string][]string{
		"exits": sets("dynamic.kind=exit"), "exits of a llama": sets("dynamic.kind=exit", "model.family=llama", "model.key_value_heads=1", "exit.confidence=softmax", "model.tied=false"),
		"saturation": sets("dynamic.kind=exit", "exit.confidence=saturation"), "depths": sets("dynamic.kind=mod", "mod.route=predictor"),
		"depths of a llama": sets("dynamic.kind=mod", "model.family=llama"), "buckets": sets("dynamic.kind=attention", "attention.keys=own", "attention.buckets=4"), "experts behind exits": sets("dynamic.kind=exit+moe", "model.family=llama", "moe.experts=4"),
		"experts in depths": sets("dynamic.kind=mod+moe", "model.family=llama", "moe.experts=4", "model.rope_scaling=llama3", "model.rope_original_max_position_embeddings=8"),
		"llama_moe":         sets("dynamic.kind=moe", "model.family=llama", "moe.experts=4", "moe.top=2", "moe.router=mlp", "moe.scale=2", "model.rope_scaling=linear"), "llama_moe with one matrix": sets("dynamic.kind=moe", "model.family=llama", "moe.experts=4", "moe.top=2", "moe.scale=2"),
		"exits and depths": sets("dynamic.kind=exit+mod", "mod.route=predictor", "model.family=llama"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run, hf := filepath.Join(dir, "run"), filepath.Join(dir, "hf")
			if e := says(training(append(append(small, more...), "--run-dir", run)...)...); e.status != exitDone {
				t.Fatalf("%+v", e)
			}
			if e := ckpt("export", run, "-o", hf); e.status != exitDone {
				t.Fatalf("%+v", e)
			}
			tokens := []int32{102, 117, 110, 99, 32, 109, 97, 105, 110, 40, 41, 10}
			arguments := []string{filepath.Join(hf, "dynmo_reference.py"), hf}
			for _, token := range tokens {
				arguments = append(arguments, strconv.Itoa(int(token)))
			}
			checkpoints, _, err := checkpoint.All(run)
			expect.OK(t, err)
			w, err := checkpoints[0].Weights()
			expect.OK(t, err)
			defer w.Close()
			settings, _, err := checkpoints[0].Config()
			expect.OK(t, err)
			w.Config.Model.Kinds = model.FromConfig(settings).Kinds
			thresholds, err := checkpoints[0].Thresholds()
			expect.OK(t, err)
			m, err := sample.New(w.Config.Model, 1, nil, w.Read)
			expect.OK(t, err)
			defer m.Close()
			for _, at := range []float64{0.5, 2} { // with one some tokens leave, with the other none
				if at == 2 && name != "exits" {
					continue
				}
				rewrite(t, filepath.Join(hf, "dynmo.json"), func(kinds map[string]any) {
					for i := range thresholds {
						thresholds[i] = at
					}
					kinds["thresholds"] = thresholds
				})
				command := exec.Command(interpreter, arguments...)
				command.Env = environment
				var wrong bytes.Buffer
				command.Stderr = &wrong
				said, err := command.Output()
				if err != nil {
					t.Fatalf("%v: %s", err, &wrong)
				}
				s := m.NewSession(len(tokens), nil)
				if len(thresholds) > 0 {
					s = m.NewSession(len(tokens), &sample.Leaving{Thresholds: thresholds})
				}
				lines := bufio.NewScanner(bytes.NewReader(said))
				for i, token := range tokens {
					lines.Scan()
					var got struct{ Logits []float64 }
					expect.OK(t, json.Unmarshal(lines.Bytes(), &got))
					logits, err := s.Feed(token)
					expect.OK(t, err)
					for j, x := range logits {
						if math.Abs(float64(x)-got.Logits[j]) > 1e-4*(1+math.Abs(got.Logits[j])) {
							t.Errorf("thresholds %v, token %d: logit %d is %v, the reference's %v %s", thresholds, i, j, x, got.Logits[j], lines.Bytes()[:14])
							break
						}
					}
				}
			}
		})
	}
}

// rewrite changes a JSON file.
func rewrite(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(path)
	expect.OK(t, err)
	var values map[string]any
	expect.OK(t, json.Unmarshal(text, &values))
	change(values)
	text, err = json.Marshal(values)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(path, text, 0o666))
}
