package weights

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// Shards have at most the wanted bytes, except where one tensor has more. Tensors are in the order
// of the model. Shards are read as the same model. Weights that fit are one file.
func TestShard(t *testing.T) {
	for name, f := range map[string]*foreign{"llama": newLlama("F32", false, "model.", 0), "packed": packed5("F32")} {
		for _, d := range []DType{"", bf16} {
			w := imported(t, f.directory(t, 0))
			const most = 3000
			w.Shard(most, d)
			dir := t.TempDir()
			expect.OK(t, w.WriteHuggingFace(dir, d, nil))
			files, err := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
			expect.OK(t, err)
			if len(files) < 2 {
				t.Fatalf("%s: %d files", name, len(files))
			}
			for _, path := range files {
				s, err := Open(path)
				expect.OK(t, err)
				total := int64(0)
				for _, x := range s.Tensors {
					total += x.Bytes()
				}
				if expect.OK(t, s.Close()); total > most && len(s.Tensors) > 1 {
					t.Errorf("%s: %s has %d tensors of %d bytes", name, filepath.Base(path), len(s.Tensors), total)
				}
			}
			again := imported(t, dir)
			for _, p := range w.weights() {
				want, err := w.Read(p)
				expect.OK(t, err)
				if got, err := again.Read(p); err != nil || d == "" && !slices.Equal(got, want) || len(got) != len(want) {
					t.Errorf("%s: %s has changed, %v", name, p.Name, err)
				}
			}
			expect.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer.model"), nil, 0o666))
			expect.OK(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o666))
			w.Shard(1<<40, d)
			expect.OK(t, w.WriteHuggingFace(dir, d, map[string][]byte{"tokenizer.json": nil}))
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			expect.OK(t, err)
			for i := range names {
				names[i] = filepath.Base(names[i])
			}
			if got := strings.Join(names, " "); got != "config.json generation_config.json mine model.safetensors tokenizer.json" {
				t.Errorf("%s: files %s: of the model before none is to stay", name, got)
			}
		}
	}
}

// A model with experts goes out as the type that is asked for, if that can describe it.
func TestAs(t *testing.T) {
	mixture := imported(t, newLlama("F32", false, "model.", 3).directory(t, 5))
	expect.OK(t, mixture.As(""))
	if mixture.shards == nil {
		t.Error("a model that keeps its type has lost its shards")
	}
	if err := mixture.As("llama_moe"); err == nil || err.Error() != "model.rope_base is 1e+06, llama_moe has 10000" {
		t.Errorf("error %v", err)
	}
	for want, f := range map[string]*foreign{
		"moe.scale is 4, mixtral has 1":                               llamaMoE("F32", "linear", false),
		`model type "gpt2": want llama or mistral for this model`:     newLlama("F32", false, "model.", 0),
		`model type "gpt2": want mixtral or llama_moe for this model`: newLlama("F32", false, "model.", 3),
	} {
		w, name := imported(t, f.directory(t, 0)), "gpt2"
		if f.isMoE() {
			name = "mixtral"
		}
		if err := w.As(name); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	plain := llamaMoE("F32", "linear", false)
	plain.config = strings.Replace(plain.config, `"score_scale_factor": 4.0`, `"score_scale_factor": 1.0`, 1)
	for to, f := range map[string]*foreign{"mixtral": plain, "mistral": newLlama("F32", false, "model.", 0)} {
		w := imported(t, f.directory(t, 0))
		w.Config = w.Config.beginning("3")
		expect.OK(t, w.As(to))
		dir := t.TempDir()
		expect.OK(t, w.WriteHuggingFace(dir, "", nil))
		again := imported(t, dir)
		if again.Config.form.Name != to || again.Config.Model.Parameters() != w.Config.Model.Parameters() {
			t.Errorf("%+v", again.Config.Model)
		}
		if begin := string(again.Config.members()[beginKey].JSON); f != plain && begin != "3" {
			t.Errorf("%s: texts begin with %s, want 3", to, begin)
		}
	}
}
