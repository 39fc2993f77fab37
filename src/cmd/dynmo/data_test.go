package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/launch"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// texts returns a folder with texts.
func texts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "Hello world", "b.txt": strings.Repeat("the quick brown fox jumps over the lazy dog; ", 200), "c.md": "not \xff UTF-8",
	} {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestDataPrepareAndInspect(t *testing.T) {
	dir := texts(t)
	for _, c := range []struct{ format, want string }{
		{"llmc", `{"format":"llmc","dtype":"u16","tokens":3,"documents":1,"end_id":50256,"min_id":995,"max_id":50256}`},
		{"megatron", `{"format":"megatron","dtype":"u16","tokens":3,"documents":1,"min_id":995,"max_id":50256}`},
	} {
		file := filepath.Join(dir, c.format+".bin")
		out := said(t, "data", "prepare", "--tokenizer", "gpt2", "--format", c.format, "-o", file, filepath.Join(dir, "a.txt"))
		if !strings.HasPrefix(out, file+": 1 documents, 11 bytes, 3 tokens, ") {
			t.Fatalf("%s: %s", c.format, out)
		}
		if out = said(t, "data", "inspect", "--json", file); strings.TrimSpace(out) != c.want {
			t.Errorf("%s:\ngot  %swant %s", c.format, out, c.want)
		}
	}
	out := said(t, "data", "inspect", filepath.Join(dir, "llmc.bin"))
	want := "format     llmc\ndtype      u16\ntokens     3\ndocuments  1, counted by token 50256, which ends them\nmin id     995\nmax id     50256\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	// Tokens of an unknown tokenizer need not have GPT-2's end of text.
	file := filepath.Join(dir, "ids.bin")
	expect.OK(t, os.WriteFile(file, []byte{1, 0, 2, 0}, 0o600))
	if out := said(t, "data", "inspect", "--dtype", "u16", file); !strings.Contains(out, "documents  not recorded\n") {
		t.Error(out)
	}
}

// bytesModel returns a sentencepiece model file whose only pieces are bytes
// (ids 3 to 258), by the layout of a protocol buffer.
func bytesModel() []byte {
	var raw []byte
	add := func(text string, kind byte) {
		piece := append(append([]byte{0x0a, byte(len(text))}, text...), 0x18, kind)
		raw = append(append(raw, 0x0a, byte(len(piece))), piece...)
	}
	add("<unk>", 2)
	add("<s>", 3)
	add("</s>", 3)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 6)
	}
	raw = append(raw, 0x12, 5, 0x18, 2, 0x98, 2, 1) // BPE, byte fallback
	return append(raw, 0x1a, 2, 0x20, 0)            // spaces stay
}

// TestDataPrepareWithSentencePiece prepares two texts with a sentencepiece model. The space that the model puts before a text is three bytes, and so is the space between the
// words.
func TestDataPrepareWithSentencePiece(t *testing.T) {
	dir := t.TempDir()
	a, b, model, file := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt"), filepath.Join(dir, "tokenizer.model"), filepath.Join(dir, "o.bin")
	for path, text := range map[string]string{model: string(bytesModel()), a: "Hello world", b: "A"} {
		expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	out := said(t, "data", "prepare", "--tokenizer", "sentencepiece", "--tokenizer-model", model, "--format", "megatron", "-o", file, a, b)
	if !strings.HasPrefix(out, file+": 2 documents, 12 bytes, 22 tokens, vocabulary 259, ") {
		t.Fatal(out)
	}
	out = said(t, "data", "inspect", "--json", file)
	if want := `{"format":"megatron","dtype":"u16","tokens":22,"documents":2,"min_id":2,"max_id":229}`; strings.TrimSpace(out) != want {
		t.Errorf("got  %swant %s", out, want)
	}
}

func TestDataRefuses(t *testing.T) {
	dir := texts(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("endless.json"), `{"model": {"type": "BPE", "vocab": null, "merges": []}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}}`)
	for _, c := range []struct {
		name string
		args []string
		want string // DIR stands for the folder
	}{
		{"not UTF-8", []string{"prepare", "-o", in("o.bin"), dir}, "dynmo: DIR/c.md: byte 4: 0xff: the text is not UTF-8\n"},
		{"tokenizer", []string{"prepare", "--tokenizer", "gpt5", "-o", in("o.bin"), dir}, "dynmo: --tokenizer \"gpt5\": open gpt5: no such file or directory, want gpt2, sentencepiece, or a tokenizer's directory or file: tokenizer.json, tokenizer.model, or vocab.json and merges.txt\n"},
		{"no model", []string{"prepare", "--tokenizer", "sentencepiece", "-o", in("o.bin"), dir}, "dynmo: --tokenizer sentencepiece: want its model file, --tokenizer-model FILE\n"},
		{"model of nothing", []string{"prepare", "--tokenizer-model", in("a.txt"), "-o", in("o.bin"), dir}, "dynmo: --tokenizer-model \"DIR/a.txt\": gpt2 has no model file, want --tokenizer sentencepiece\n"},
		{"directory without a tokenizer", []string{"prepare", "--tokenizer", dir, "-o", in("o.bin"), in("a.txt")}, "dynmo: --tokenizer \"DIR\": DIR: no tokenizer.json, tokenizer.model, or vocab.json with merges.txt: file does not exist, want gpt2, sentencepiece, or a tokenizer's directory or file: tokenizer.json, tokenizer.model, or vocab.json and merges.txt\n"},
		{"tokenizer is text", []string{"prepare", "--tokenizer", in("a.txt"), "-o", in("o.bin"), in("a.txt")}, "dynmo: --tokenizer: DIR/a.txt: byte 2: no sentencepiece model: field 13 is malformed or cut short\n"},
		{"no end of texts", []string{"prepare", "--tokenizer", in("endless.json"), "-o", in("o.bin"), in("a.txt")}, "dynmo: --tokenizer: DIR/endless.json: no token that ends texts: want eos_token in tokenizer_config.json\n"},
		{"model is text", []string{"prepare", "--tokenizer", "sentencepiece", "--tokenizer-model", in("a.txt"), "-o", in("o.bin"), dir}, "dynmo: DIR/a.txt: byte 2: no sentencepiece model: field 13 is malformed or cut short\n"},
		{"model is missing", []string{"prepare", "--tokenizer", "sentencepiece", "--tokenizer-model", in("no"), "-o", in("o.bin"), dir}, "dynmo: open DIR/no: no such file or directory\n"},
		{"format", []string{"prepare", "--format", "csv", "-o", in("o.bin"), dir}, "dynmo: --format \"csv\", want llmc or megatron\n"},
		{"over a text", []string{"prepare", "-o", in("a.txt"), dir}, "dynmo: DIR/a.txt: want a name that ends in .bin\n"},
		{"nothing with the ending", []string{"prepare", "--extensions", ".go", "-o", in("o.bin"), dir}, "dynmo: the inputs hold no text\n"},
		{"inspect text", []string{"inspect", in("a.txt")}, "dynmo: DIR/a.txt: want a token file, whose name ends in .bin\n"},
		{"inspect nothing", []string{"inspect", in("absent.bin")}, "dynmo: open DIR/absent.bin: no such file or directory\n"},
	} {
		e := says(append([]string{"data"}, c.args...)...)
		if got := strings.ReplaceAll(e.stderr, dir, "DIR"); e.status != exitUsage || got != c.want {
			t.Errorf("%s: status %d\ngot  %swant %s", c.name, e.status, got, c.want)
		}
		if _, err := os.Stat(in("o.bin")); err == nil {
			t.Errorf("%s: an output is left behind", c.name)
		}
	}
}

// TestTokenizerGoesAlong: the tokenizer of a token file stays with the run on the file. It stays
// with the run's export, with weights of the export, and with a run that begins with these weights.
// All of them continue a text alike.
func TestTokenizerGoesAlong(t *testing.T) {
	_, err := build()
	expect.OK(t, err)
	t.Chdir(folder(t, ""))
	expect.OK(t, os.Mkdir("llama", 0o777))
	config := `{"add_bos_token": true, "eos_token": "</s>"}`
	for name, text := range map[string]string{"tokenizer.model": string(bytesModel()), "tokenizer_config.json": config} {
		expect.OK(t, os.WriteFile(filepath.Join("llama", name), []byte(text), 0o666))
	}
	if out := said(t, "data", "prepare", "--tokenizer", "llama", "-o", "o.bin", "text.txt"); !strings.Contains(out, "1 documents, 9000 bytes, ") || !strings.Contains(out, "vocabulary 259") {
		t.Error(out)
	}
	if out := said(t, "data", "inspect", "o.bin"); !strings.Contains(out, "documents  1, counted by token 2, which ends them\n") {
		t.Error(out)
	}
	run := sets("run.clock=wall", "parallel.stages=2", "model.family=llama", "model.blocks=1", "model.hidden=16", "model.heads=2", "model.sequence=16", "model.vocab=259",
		"data.path=o.bin", "train.steps=1", "checkpoint.every=1")
	if e := says(training(append(run, "--run-dir", "run")...)...); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	said(t, "ckpt", "export", "run", "-o", "hf")
	said(t, "ckpt", "import", "hf", "-o", "weights")
	said(t, "ckpt", "export", "weights", "-o", "back")
	expect.OK(t, os.RemoveAll("o.tokenizer"))
	imported := append(run, sets("model.weights=weights", "train.steps=1")...)
	corpus := "corpus: 1 file, 12605 tokens"
	for _, c := range []struct {
		more []string
		says string
	}{
		{[]string{"--run-dir", "again"}, corpus + " of the tokenizer in weights\n"},
		{append(sets("data.path=text.txt"), "--no-run-dir"), "corpus: 1 file, 9 kB of text, every byte is a token\n" +
			"note: the imported weights have a tokenizer, and these tokens are bytes: run dynmo data prepare -o OUT.bin --tokenizer DIR text.txt with DIR of the tokenizer, then set data.path = \"OUT.bin\"\n"},
		{append(sets("data.path=text.txt", "model.weights="), "--no-run-dir"), "every byte is a token\n"},
		{append(sets("model.weights="), "--no-run-dir"), corpus + ", their tokenizer is not known\n"},
	} {
		e := alone.run(t, ".", training(append(imported, c.more...)...)...)
		if note := "imported weights have a tokenizer"; e.status != exitDone || !strings.Contains(e.stderr, c.says) || strings.Contains(e.stderr, note) != strings.Contains(c.says, note) {
			t.Fatalf("want %q: %+v", c.says, e)
		}
	}
	for _, dir := range []string{"run/tokenizer", "hf", "back", "again/tokenizer"} {
		for _, name := range []string{"tokenizer.model", "tokenizer_config.json"} {
			want, err := os.ReadFile(filepath.Join("llama", name))
			expect.OK(t, err)
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s differs (%v)", dir, name, err)
			}
		}
	}
	for _, dir := range []string{"hf", "back"} { // for programs that read no sentencepiece model
		if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		text, err := os.ReadFile("hf/" + name)
		if expect.OK(t, err); !strings.Contains(string(text), `"eos_token_id": 2`) || !strings.Contains(string(text), `"bos_token_id": 1`) {
			t.Errorf("%s", text)
		}
	}
	first := decoded[sampled](t, "sample", "run", "--prompt", "a", "--tokens", "3")
	if first.PromptTokens != 5 { // <s>, and the three bytes of ▁, then a
		t.Errorf("%+v", first)
	}
	if begun := decoded[sampled](t, "sample", "hf", "--tokens", "2"); begun.PromptTokens != 1 { // <s>
		t.Errorf("without a prompt: %+v", begun)
	}
	for _, from := range []string{"hf", "weights", "back"} {
		if again := decoded[sampled](t, "sample", from, "--prompt", "a", "--tokens", "3"); again.Text != first.Text {
			t.Errorf("%s: %+v, want %+v", from, again, first)
		}
	}
	// Another tokenizer replaces the first. A tokenizer that is known by its vocabulary leaves no
	// files.
	said(t, "data", "prepare", "--tokenizer", "sentencepiece", "--tokenizer-model", "llama/tokenizer.model", "-o", "o.bin", "--force", "text.txt")
	if list, err := os.ReadDir("o.tokenizer"); err != nil || len(list) != 1 || list[0].Name() != "tokenizer.model" {
		t.Errorf("%v, %v", list, err)
	}
	said(t, "data", "prepare", "-o", "o.bin", "--force", "text.txt")
	if _, err := os.Stat("o.tokenizer"); err == nil {
		t.Error("the tokenizer of other tokens is left")
	}
}

// lossLog collects the losses of a run.
type lossLog []float64

func (l *lossLog) Step(m record.Metrics) error {
	*l = append(*l, float64(m.Loss))
	return nil
}

func (*lossLog) Event(record.Event) error { return nil }
func (*lossLog) Costs(record.Phase) error { return nil }
func (*lossLog) Trace(trace.Step) error   { return nil }
func (*lossLog) Say(string)               {}

// TestTrainOnPreparedFile: a model learns from a prepared file. A model with a vocabulary too small
// for the file's ids is refused before training.
func TestTrainOnPreparedFile(t *testing.T) {
	dir := texts(t)
	file := filepath.Join(dir, "o.bin")
	said(t, "data", "prepare", "--format", "megatron", "--extensions", ".txt", "-o", file, dir)
	c := config.Default()
	c.Data.Path = file
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence, c.Model.Vocab = 1, 8, 1, 8, 50304
	c.Parallel.Stages, c.Parallel.Microbatches = 2, 2
	c.Optimizer.LR, c.Optimizer.Warmup = 3e-2, 0
	c.Run.Clock, c.Train.Steps, c.Device.Kernel = "wall", 12, "ref"
	var losses lossLog
	_, err := launch.Launch(c, launch.Hooks{
		Stop: func() bool { return false }, End: func(train.Outcome) {},
		Begin: func(launch.World) (record.Observer, error) { return &losses, nil },
	})
	expect.OK(t, err)
	if first, last := losses[0], losses[len(losses)-1]; first < 10 || last > first-1 {
		t.Errorf("losses %v, want about ln 50304 = 10.8 at first and at least a nat less at last", losses)
	}
	c.Model.Vocab = 50256
	_, err = launch.Launch(c, launch.Hooks{})
	want := "data: data.path: " + file + ": byte 4: id 50256 of token 2, want 0 to 50255 (model.vocab = 50256): the largest id here is 50256, so set model.vocab to the vocabulary of the tokens' tokenizer, at least 50257"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
