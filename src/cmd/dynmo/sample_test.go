package main

import (
	"os"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// sampleSays runs dynmo sample.
func sampleSays(args ...string) ended { return says(append([]string{"sample"}, args...)...) }

// TestSample: a text is the same when it streams, in JSON, from a weights file, and with any number
// of threads. It may be longer than the context, which is reported once.
func TestSample(t *testing.T) {
	run := savedRun(t)
	said(t, "ckpt", "export", run, "-o", "hf")
	said(t, "ckpt", "import", "hf", "-o", "weights")
	const prompt = "the quick brown" // 15 of 16 tokens
	ask := func(from string, more ...string) ended {
		return sampleSays(append([]string{from, "--prompt", prompt, "--tokens", "30", "--seed", "3"}, more...)...)
	}
	first := ask("hf")
	if first.status != exitDone || !strings.HasPrefix(first.stdout, prompt) || len(first.stdout) != len(prompt)+30+1 || !strings.HasSuffix(first.stdout, "\n") {
		t.Fatalf("%+v", first)
	}
	if want := "note: the text is longer than the model's context, 16 tokens: it goes on from the last half of that\n"; first.stderr != want {
		t.Errorf("stderr %q, want %q", first.stderr, want)
	}
	for _, again := range []ended{ask("hf", "--threads", "3"), ask("weights"), ask(run), ask(run + "/ckpt/step_00000012"), ask("hf", "--tokenizer", "bytes"), ask("weights", "--tokenizer", "hf")} {
		if again.stdout != first.stdout {
			t.Errorf("%+v\nwant %q", again, first.stdout)
		}
	}
	if other := ask("hf", "--seed", "4"); other.stdout == first.stdout {
		t.Errorf("another seed gives %q too", other.stdout)
	}
	answer := decoded[sampled](t, "sample", "hf", "--prompt", prompt, "--tokens", "2")
	if answer.Prompt != prompt || answer.PromptTokens != 15 || answer.Tokens != 2 || answer.Seconds <= 0 || answer.TokensPerSec <= 0 {
		t.Errorf("%+v", answer)
	}
	if begun := decoded[sampled](t, "sample", "hf", "--tokens", "3"); begun.PromptTokens != 1 || begun.Prompt != "" {
		t.Errorf("without a prompt: %+v", begun)
	}
	said(t, "ckpt", "export", run, "-o", "half", "--dtype", "bfloat16")
	said(t, "ckpt", "import", "half", "-o", "halves")
	if half, halves := ask("half"), ask("halves"); half.status != exitDone || half.stdout != halves.stdout || len(half.stdout) != len(first.stdout) {
		t.Errorf("of bfloat16: %+v, %+v", half, halves)
	}
	expect.OK(t, os.Remove("hf/tokenizer.json"))
	if older := ask("hf"); older.stdout != first.stdout {
		t.Errorf("by vocab.json and merges.txt: %+v", older)
	}
	expect.OK(t, os.Remove("hf/vocab.json"))
	for _, c := range []struct{ args, want string }{
		{"", "accepts 1 arg(s), received 0, want dynmo sample DIR|RUN_DIR|FILE"},
		{"nothing", "nothing: no such file"},
		{"run.toml", "run.toml: byte 0: header of"},
		{".", ".: no checkpoint in it: want a run directory"},
		{"hf", "hf: no tokenizer.json, tokenizer.model, or vocab.json with merges.txt: file does not exist: want the tokenizer of the model with --tokenizer"},
		{"hf --tokenizer words", "--tokenizer: open words: no such file or directory, want bytes, gpt2, or a tokenizer's directory or file: tokenizer.json"},
		{"hf --tokenizer gpt2 --prompt quick", "--prompt: token 24209 (\"quick\"): the model's vocabulary has 256 tokens, want the tokenizer it was trained with"},
		{"weights --prompt aaaaaaaaaaaaaaaaa", "--prompt: 17 tokens, the model's context has 16, want at most these"},
		{"weights --tokens 9223372036854775806", "--tokens 9223372036854775806: want 1 to 1000000"},
		{"weights --threads 0", "--threads 0: want 1 to 1024"},
		{"weights --temperature -1", "--temperature -1: want 0 to 1e6"},
		{"weights --temperature NaN", "--temperature NaN: want 0 to 1e6"},
		{"weights --top-k -1", "--top-k -1: want at least 0"},
		{"weights --top-p 0", "--top-p 0: want above 0, at most 1"},
		{"weights --compare", "--compare: weights has no exits, want a run with exit in dynamic.kind"},
		{"weights --exit-threshold 0.5", "--exit-threshold: weights has no exits, want a run with exit in dynamic.kind"},
		{"weights --top-p 1.5", "--top-p 1.5: want above 0, at most 1"},
	} {
		t.Run(c.args, func(t *testing.T) { sampleSays(strings.Fields(c.args)...).refused(t, exitUsage, c.want) })
	}
}

// TestSampleWithExits: tokens leave by the thresholds of training, or by those of the flags. If no
// token leaves, the model agrees with itself.
func TestSampleWithExits(t *testing.T) {
	t.Chdir(folder(t, ""))
	if e := says(training(append(sets("run.clock=wall", "model.blocks=3", "model.hidden=16", "parallel.stages=1", "train.steps=6",
		"dynamic.kind=exit", "exit.after=1,2", "exit.share=0.9", "exit.start=0", "exit.until=2", "exit.propagate=true", "checkpoint.every=6"), "--run-dir", "run")...)...); e.status != exitDone {
		t.Fatalf("%+v", e)
	}
	ask := func(more ...string) ended { return sampleSays(append([]string{"run", "--prompt", "a"}, more...)...) }
	e := ask("--exit-threshold", "2", "--compare", "--tokens", "15", "--seed", "3")
	for _, want := range []string{" tokens/s, 3.00 of 3 blocks per token; without exits ", " tokens/s, and the most probable token is the same for 100 % of 15\n"} {
		if e.status != exitDone || !strings.Contains(e.stderr, want) {
			t.Errorf("%+v, want %q", e, want)
		}
	}
	answer := func(more ...string) sampled {
		return decoded[sampled](t, append([]string{"sample", "run", "--prompt", "a", "--tokens", "15", "--seed", "3"}, more...)...)
	}
	first, trained, falling := answer("--exit-threshold", "-1", "--compare"), answer(), answer("--exit-threshold", "1", "--exit-decay", "1e6")
	if first.Blocks != 1 || first.Agreement == nil || *first.Agreement < 0 || *first.Agreement > 1 || first.FullTokensPerSec <= 0 {
		t.Errorf("below every confidence %+v", first)
	}
	if trained.Blocks < 1 || trained.Blocks >= 3 || trained.Agreement != nil {
		t.Errorf("by the thresholds of training, by which most tokens left, %+v", trained)
	}
	if falling.Tokens != 15 {
		t.Errorf("%+v", falling)
	}
	if e := ckpt("export", "run", "-o", "hf"); e.status != exitDone || !strings.Contains(e.stderr, "note: exits behind blocks 1,2: others let no token leave") {
		t.Errorf("%+v", e)
	}
	if out := said(t, "ckpt", "inspect", "hf/dynmo.safetensors"); !strings.Contains(out, "exit.1/classifier.weight") || strings.Contains(out, "block.0") {
		t.Errorf("beside the base model %s", out)
	}
	if base := decoded[sampled](t, "sample", "hf", "--prompt", "a", "--tokens", "15", "--seed", "3"); base.Text != answer("--exit-threshold", "2").Text {
		t.Errorf("the base model has another text than the model that no token leaves: %+v", base)
	}
	ask("--exit-threshold", "3").refused(t, exitUsage, "--exit-threshold 3: want -1 to 2")
	ask("--exit-decay", "-1").refused(t, exitUsage, "--exit-decay -1: want 0 to 1e6")
}

// TestPlain: a terminal gets no control characters except tabs and line ends.
func TestPlain(t *testing.T) {
	var out strings.Builder
	n, err := plain{&out}.Write([]byte("a\tb\n\x1b[2J\x00\x7fé"))
	if want := "a\tb\n\\x1b[2J\\x00\\x7fé"; out.String() != want || n != 12 || err != nil {
		t.Errorf("%q (%d, %v), want %q", out.String(), n, err, want)
	}
}
