package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// ckpt runs the command.
func ckpt(args ...string) ended { return says(append([]string{"ckpt"}, args...)...) }

// hfModel writes a Hugging Face directory of a GPT-2 of one block. Without values the weights are zeros
// that take no place on the disk.
func hfModel(t *testing.T, vocab, positions, channels int, values bool) string {
	t.Helper()
	dir, c := filepath.Join(t.TempDir(), "gpt2"), channels
	header, end := map[string]any{}, 0
	shapes := map[string][]int{
		"wte.weight": {vocab, c}, "wpe.weight": {positions, c}, "ln_f.weight": {c}, "ln_f.bias": {c},
		"h.0.ln_1.weight": {c}, "h.0.ln_1.bias": {c}, "h.0.ln_2.weight": {c}, "h.0.ln_2.bias": {c},
		"h.0.attn.c_attn.weight": {c, 3 * c}, "h.0.attn.c_attn.bias": {3 * c}, "h.0.attn.c_proj.weight": {c, c}, "h.0.attn.c_proj.bias": {c},
		"h.0.mlp.c_fc.weight": {c, 4 * c}, "h.0.mlp.c_fc.bias": {4 * c}, "h.0.mlp.c_proj.weight": {4 * c, c}, "h.0.mlp.c_proj.bias": {c},
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		n := 4
		for _, d := range shapes[name] {
			n *= d
		}
		header["transformer."+name] = map[string]any{"dtype": "F32", "shape": shapes[name], "data_offsets": []int{end, end + n}}
		end += n
	}
	text, err := json.Marshal(header)
	expect.OK(t, err)
	text = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	begin := len(text)
	for i := 0; values && i < end/4; i++ {
		text = binary.LittleEndian.AppendUint32(text, math.Float32bits(float32(i)))
	}
	expect.OK(t, os.Mkdir(dir, 0o777))
	expect.OK(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), text, 0o666))
	expect.OK(t, os.Truncate(filepath.Join(dir, "model.safetensors"), int64(begin+end)))
	write(t, filepath.Join(dir, "config.json"), fmt.Sprintf(`{"model_type": "gpt2", "vocab_size": %d, "n_positions": %d, "n_embd": %d, "n_layer": 1, "n_head": 2}`, vocab, positions, c))
	return dir
}

// TestCkptImportExport goes from a Hugging Face directory to a weights file and back. The weights are
// equal.
func TestCkptImportExport(t *testing.T) {
	source, dir := hfModel(t, 5, 3, 4, true), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, args := range [][]string{
		{"import", source, "-o", at("a.safetensors")},
		{"export", at("a.safetensors"), "-o", at("hf")},
		{"import", at("hf"), "--output", at("b.safetensors")},
		{"export", at("b.safetensors"), "-o", at("again")},
	} {
		want := ""
		if args[0] == "import" { // settings to copy
			want = fmt.Sprintf("[model]\nweights = %q\nfamily = \"gpt2\"\nblocks = 1\nhidden = 4\nheads = 2\ntied = true\nsequence = 3 # at most\nvocab = 5\n", args[3])
		}
		if e := ckpt(args...); e.status != exitDone || e.stdout != want || e.stderr != "" {
			t.Fatalf("%q: %+v, want %s", args, e, want)
		}
	}
	was, is := filepath.Join(source, "model.safetensors"), at("again/model.safetensors")
	got, want := read(t, is), read(t, was)
	if got[len(got)-1136:] != want[len(want)-1136:] || fmt.Sprint(decoded[contents](t, "ckpt", "inspect", is).Tensors) != fmt.Sprint(decoded[contents](t, "ckpt", "inspect", was).Tensors) {
		t.Error("the model has changed")
	}
	for name, want := range map[string]string{"a.safetensors": "a.safetensors: dynmo weights, 16 tensors, ", "hf/model.safetensors": ": safetensors, 16 tensors, "} {
		if out := said(t, "ckpt", "verify", at(name)); !strings.Contains(out, want) {
			t.Errorf("verify: %s, want %s", out, want)
		}
	}
	c := decoded[contents](t, "ckpt", "inspect", at("a.safetensors"))
	if x := c.Tensors[0]; len(c.Tensors) != 16 || x.Name != "block.0/down.bias" || x.DType != "F32" || fmt.Sprint(x.Shape) != "[4]" || x.Bytes != 16 {
		t.Errorf("inspect: %+v", c)
	}
	out := said(t, "ckpt", "inspect", at("a.safetensors"))
	if want := "F32                 192 [12 4]           block.0/qkv.weight\n"; !strings.Contains(out, want) || !strings.Contains(out, "16 tensors, 1136 bytes\n") {
		t.Errorf("want %q:\n%s", want, out)
	}
}

// A trained LLaMA, dense or with experts, becomes a Hugging Face directory of bfloat16. The
// directory comes back unchanged from a weights file, continues a text, and trains on.
func TestCkptLlama(t *testing.T) {
	t.Chdir(folder(t, ""))
	shape := sets("run.clock=wall", "parallel.stages=2", "model.family=llama", "model.blocks=1", "model.hidden=16", "model.heads=2", "model.key_value_heads=1", "model.intermediate=12",
		"model.sequence=8", "train.steps=1")
	for kind, architecture := range map[string]string{"none": "LlamaForCausalLM", "moe": "MixtralForCausalLM"} {
		run := append(slices.Clone(shape), sets("dynamic.kind="+kind)...)
		if e := says(training(append(run, append(sets("checkpoint.every=1"), "--run-dir", kind)...)...)...); e.status != exitDone {
			t.Fatalf("%+v", e)
		}
		said(t, "ckpt", "export", kind, "-o", kind+"-hf", "--dtype", "bfloat16")
		said(t, "ckpt", "import", kind+"-hf", "-o", kind+".safetensors")
		said(t, "ckpt", "export", kind+".safetensors", "-o", kind+"-back")
		for _, name := range []string{"config.json", "generation_config.json", "model.safetensors"} {
			want, err := os.ReadFile(filepath.Join(kind+"-hf", name))
			expect.OK(t, err)
			if got, err := os.ReadFile(filepath.Join(kind+"-back", name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s has changed (%v)", kind, name, err)
			}
			if name == "config.json" && !strings.Contains(string(want), architecture) {
				t.Errorf("%s: %s", kind, want)
			}
		}
		text := sampleSays(kind+"-hf", "--prompt", "the q", "--tokens", "3")
		if again := sampleSays(kind+".safetensors", "--prompt", "the q", "--tokens", "3"); text.status != exitDone || text.stderr != "" || again.stdout != text.stdout {
			t.Errorf("%+v, %+v", text, again)
		}
		if e := says(training(append(run, sets("model.weights="+kind+".safetensors")...)...)...); e.status != exitDone {
			t.Errorf("%+v", e)
		}
	}
	const differs = `note: moe.balance = "s-base": others send a token to its most probable experts, by weights that add up to 1, not to balanced ones by their probabilities; ` +
		"moe.capacity = 1.5: others drop no assignment\n"
	if e := says(training(append(slices.Clone(shape), append(sets("dynamic.kind=moe", "moe.balance=s-base", "moe.capacity=1.5", "checkpoint.every=1"), "--run-dir", "balanced")...)...)...); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	if e := ckpt("export", "balanced", "-o", "balanced-hf", "--shard-size", "4kB"); e.status != exitDone || e.stderr != differs {
		t.Errorf("%+v, want %s", e, differs)
	}
	if shards, _ := filepath.Glob("balanced-hf/model-0*-of-0*.safetensors"); len(shards) < 2 {
		t.Errorf("%d shards", len(shards))
	}
	said(t, "ckpt", "import", "balanced-hf", "-o", "balanced.safetensors")
	// A note says how training chose experts, because only the run knows that.
	const chosen = "note: moe.balance = s-base chose experts by all tokens of a microbatch: here each token goes to those that are most probable for it\n" +
		"note: moe.capacity dropped what experts had no room for: here they have\n"
	if e := sampleSays("balanced", "--prompt", "the q", "--tokens", "3"); e.status != exitDone || e.stderr != chosen {
		t.Errorf("%+v", e)
	}
}

// TestExportLlamaMoE: a model whose experts no current program loads is exported with the model in plain
// PyTorch. Its weights train on with its own settings alone.
func TestExportLlamaMoE(t *testing.T) {
	t.Chdir(folder(t, ""))
	moe := sets("run.clock=wall", "model.family=llama", "model.blocks=1", "model.hidden=16", "model.heads=2", "model.intermediate=12", "model.sequence=8", "parallel.stages=2",
		"dynamic.kind=moe", "moe.experts=4", "moe.intermediate=3", "moe.top=2")
	train := func(more ...string) ended { return says(training(slices.Concat(moe, more)...)...) }
	scaled := sets("moe.scale=4", "moe.router=mlp")
	if e := train(append(scaled, "--set", "train.steps=1", "--set", "checkpoint.every=1", "--run-dir", "run")...); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	ckpt("export", "run", "-o", "x", "--model-type", "mixtral").refused(t, exitUsage, "moe.scale is 4, mixtral has 1")
	const alone = "note: model_type llama_moe: no current program loads it, Transformers 5.12.1 neither; dynmo_reference.py is the model in plain PyTorch\n"
	if e := ckpt("export", "run", "-o", "hf"); e.status != exitDone || !strings.HasSuffix(e.stderr, alone) {
		t.Errorf("%+v, want %s", e, alone)
	}
	for name, want := range map[string]string{"dynmo_reference.py": "LLaMA-MoE", "DYNMO.md": "# A model of type llama_moe\n\nmodel_type llama_moe: no current program loads it", "dynmo.json": "{"} {
		if text, err := os.ReadFile(filepath.Join("hf", name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s (%v)", name, text, err)
		}
	}
	expect.OK(t, os.WriteFile("imported.toml", []byte(said(t, "ckpt", "import", "hf", "-o", "moe.safetensors")), 0o600))
	if e := says(append([]string{"train", "imported.toml", "--no-run-dir"}, sets("run.clock=wall", "train.steps=1", "data.path=text.txt")...)...); e.status != exitDone || strings.Contains(e.stderr, "drawn") {
		t.Errorf("%+v", e)
	}
	if e := train(append(scaled, sets("train.steps=1", "model.weights=moe.safetensors")...)...); e.status != exitDone {
		t.Errorf("%+v", e)
	}
	train(sets("moe.scale=4", "model.weights=moe.safetensors")...).refused(t, exitUsage, "moe.router is linear, the weights have mlp")
	train(sets("model.weights=moe.safetensors")...).refused(t, exitUsage, "moe.router is linear, the weights have mlp; moe.scale is 1, the weights have 4")
}

// TestExportKeepsTheSource: the export of a model has the positions, the router's coefficient and the
// generation_config.json of the weights that it was imported from, also after training.
func TestExportKeepsTheSource(t *testing.T) {
	t.Chdir(folder(t, ""))
	train := func(more ...string) {
		t.Helper()
		shape := sets("run.clock=wall", "parallel.stages=1", "model.family=llama", "model.blocks=2", "model.hidden=16", "model.heads=2", "train.steps=1", "checkpoint.every=1", "dynamic.kind=moe", "moe.top=2", "moe.aux=0.01")
		if e := says(training(append(shape, more...)...)...); e.status != exitDone {
			t.Fatalf("%+v", e)
		}
	}
	has := func(dir string, positions int, coefficient string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "config.json"))
		expect.OK(t, err)
		var c struct {
			Positions   int             `json:"max_position_embeddings"`
			Coefficient json.RawMessage `json:"router_aux_loss_coef"`
		}
		expect.OK(t, json.Unmarshal(text, &c))
		if c.Positions != positions || string(c.Coefficient) != coefficient {
			t.Errorf("%s: %d positions, coefficient %s, want %d, %s", dir, c.Positions, c.Coefficient, positions, coefficient)
		}
	}
	train(append(sets("model.sequence=8"), "--run-dir", "run")...)
	said(t, "ckpt", "export", "run", "-o", "hf")
	has("hf", 8, "0.01") // 0.01 for each of 2 blocks, by 2 choices
	var end any
	rewrite(t, "hf/config.json", func(c map[string]any) {
		c["max_position_embeddings"], c["router_aux_loss_coef"], c["bos_token_id"], end = 64, 0.25, 9, c["eos_token_id"]
	})
	for _, own := range []bool{true, false} { // whether the file names the token that ends texts here
		if end = fmt.Sprint(end); !own {
			end = "7"
			rewrite(t, "hf/config.json", func(c map[string]any) { c["eos_token_id"] = 7 })
		}
		generation := fmt.Sprintf("{\n\t\"bos_token_id\": 8, \"eos_token_id\": [3, %v],  \"temperature\": 0.60 }", end)
		expect.OK(t, os.WriteFile("hf/generation_config.json", []byte(generation), 0o600))
		said(t, "ckpt", "import", "hf", "-o", "weights", "--force")
		said(t, "ckpt", "export", "weights", "-o", "back", "--force")
		same(t, "hf", "back")
		train(append(sets("model.sequence=4", "model.weights=weights"), "--run-dir", "run", "--force")...)
		expect.OK(t, os.Remove("weights"))
		train(append(sets("model.sequence=4", "model.weights=weights", "train.steps=2"), "--run-dir", "run", "--resume")...)
		said(t, "ckpt", "export", "run", "-o", "trained", "--force")
		has("trained", 64, "0.25")
		agreed := strings.Replace(generation, "8", "9", 1) // on the first token of config.json
		if text, err := os.ReadFile("trained/generation_config.json"); err != nil || (string(text) == agreed) != own {
			t.Errorf("%s (%v), own %v", text, err, own)
		}
		if text, err := os.ReadFile("trained/config.json"); err != nil || strings.Contains(string(text), `"bos_token_id": 9`) != own {
			t.Errorf("%s (%v), own %v", text, err, own)
		}
	}
	train(append(sets("model.sequence=4"), "--run-dir", "run", "--force")...)
	said(t, "ckpt", "export", "run", "-o", "trained", "--force")
	has("trained", 4, "0.01")
	if _, err := os.Stat("run/source"); err == nil {
		t.Error("a run without weights has those of an earlier run")
	}
}

func TestCkptRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bin/config.json":       `{"model_type":"gpt2"}`,
		"bin/pytorch_model.bin": "a pickle",
		"none/config.json":      `{"model_type":"gpt2"}`,
		"lines/config.json":     "{\"model_type\":\"llama\",\n\"rope_scaling\": {\n  \"type\": [\n    1\n  ]\n}}",
		"untyped/config.json":   "{}",
		"text":                  "no weights at all",
		"mistral/config.json":   `{"model_type":"mistral"}`,
		"foreign":               "\x02\x00\x00\x00\x00\x00\x00\x00{}",
	} {
		expect.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	for _, c := range []struct{ args, want string }{
		{"", "ckpt: what? see dynmo ckpt --help"},
		{"inspect", "accepts 1 arg"},
		{"inspect nothing", "nothing: no such file"},
		{"inspect .", ".: a directory, want a file: of a run, dynmo ckpt verify checks the checkpoints, and dynmo ckpt export and then dynmo ckpt import make a weights file"},
		{"inspect mistral", "mistral: a Hugging Face directory, want a file: dynmo ckpt import mistral -o FILE makes one"},
		{"inspect text", "text: byte 0: header of"},
		{"verify text", "text: byte 0: header of"},
		{"import text", `"output" not set`},
		{"import text -o out", "text: a file, want a Hugging Face directory: config.json with model.safetensors"},
		{"import mistral -o out", "mistral/config.json: sliding_window is missing, which means 4096: want null"},
		{"import bin -o out", "bin/pytorch_model.bin: weights in another form: want model.safetensors, or model.safetensors.index.json with its shards, as save_pretrained"},
		{"import none -o out", "none/model.safetensors: file does not exist: want it, or model.safetensors.index.json with its shards"},
		{"import lines -o out", "lines/config.json: rope_scaling: type: byte 51: [1] is not supported, want one of default, linear, llama3"},
		{"import untyped -o out", "untyped/config.json: model_type is missing, want one of gpt2, llama, mistral, mixtral, llama_moe"},
		{"import nothing -o out", "nothing: no such file"},
		{"export foreign -o out", "foreign: metadata: format"},
		{"export foreign -o out --shard-size 0", `--shard-size "0", want an integer from 1 with kB, MB, GB or nothing behind it`},
		{"export foreign -o out --shard-size 99999999999GB", `--shard-size "99999999999GB", want`},
		{"export foreign -o out --shard-size 5TB", `--shard-size "5TB", want`},
	} {
		t.Run(c.args, func(t *testing.T) { ckpt(strings.Fields(c.args)...).refused(t, exitUsage, c.want) })
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("a refused import has written its file")
	}
	ckpt("import", hfModel(t, 5, 3, 4, true), "-o", "no/such/dir").refused(t, exitFailure, "no/such")
}

// TestImportWritesSettings: --config is a CONFIG for the imported weights, with which train begins as it is, but
// for the text. It never names standard output's weights, and writes over nothing without --force.
func TestImportWritesSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	source := hfModel(t, 256, 8, 4, true)
	said(t, "ckpt", "import", source, "-o", "w.safetensors", "--config", "run.toml")
	if printed := said(t, "ckpt", "import", source, "-o", "w.safetensors", "--force"); read(t, "run.toml") != printed {
		t.Errorf("the file has\n%s\nwant what is printed without it:\n%s", read(t, "run.toml"), printed)
	}
	write(t, "text.txt", strings.Repeat("abc", 200))
	if e := says("train", "run.toml", "--no-run-dir", "--set", "data.path=text.txt", "--set", "data.extensions=[]", "--set", "train.steps=1"); e.status != exitDone {
		t.Errorf("status %d: %s", e.status, e.stderr)
	}
	says("ckpt", "import", source, "-o", "new.safetensors", "--config", "run.toml").refused(t, exitUsage, "run.toml exists: --force writes over it")
	says("ckpt", "import", source, "-o", "-", "--config", "new.toml").refused(t, exitUsage, "--config: its settings name the weights file: want --output FILE beside it, not -")
}
