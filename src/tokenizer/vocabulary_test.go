package tokenizer

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// texts has what encodings get wrong: spaces, marks, numbers, letters of several
// bytes, control characters, and bytes that are no text.
var texts = []string{
	"", "func main() {\n\tfmt.Println(\"hello, world\")\n}\n", "  two  spaces and   more ", "it's we've I'll they're",
	"naïve café 東京 🙂 ½", "1234567 3.14", "a\x00b\x7f\x01", "\xff\xfe not UTF-8 \xc3", strings.Repeat("aaaab", 300),
}

// written writes a vocabulary's files and reads them.
func written(t *testing.T, v *Vocabulary) *Vocabulary {
	t.Helper()
	dir := t.TempDir()
	files, err := v.Files(64)
	expect.OK(t, err)
	for name, text := range files {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	again, err := OpenVocabulary(dir)
	expect.OK(t, err)
	return again
}

// Texts come back from their tokens, byte for byte, and files say the same as their vocabulary.
func TestVocabulary(t *testing.T) {
	for name, v := range map[string]*Vocabulary{"bytes": Bytes(), "gpt2": GPT2Vocabulary()} {
		again := written(t, v)
		if again.Size() != v.Size() || again.Text(7) != v.Text(7) || len(again.merges) != len(v.merges) {
			t.Errorf("%s: %d tokens and %d merges, want %d and %d", name, again.Size(), len(again.merges), v.Size(), len(v.merges))
		}
		files, err := v.Files(64)
		expect.OK(t, err)
		delete(files, data.TokenizerFile)
		pair, err := ParseTokenizer("", files)
		expect.OK(t, err)
		for _, text := range texts {
			tokens, err := v.Prompt(text)
			expect.OK(t, err)
			var back strings.Builder
			for _, token := range tokens {
				back.WriteString(v.Text(token))
			}
			if back.String() != text {
				t.Errorf("%s: %q comes back as %q", name, text, back.String())
			}
			if other, err := pair.Prompt(text); err != nil || !slices.Equal(other, tokens) {
				t.Errorf("%s: %q: vocab.json and merges.txt have tokens %v, want %v (%v)", name, text, other, tokens, err)
			}
			if other, err := again.Prompt(text); err != nil || !slices.Equal(other, tokens) {
				t.Errorf("%s: %q: the files have tokens %v, want %v (%v)", name, text, other, tokens, err)
			}
			if name == "bytes" && len(tokens) != len(text) {
				t.Errorf("%q: %d tokens", text, len(tokens))
			}
		}
	}
	if end := written(t, GPT2Vocabulary()).End; end != data.GPT2End {
		t.Errorf("texts end with token %d", end)
	}
}

// GPT-2's vocabulary encodes as the tokenizer that corpora are prepared with.
func TestGPT2VocabularyIsTheTokenizers(t *testing.T) {
	_, files := moduleText(t)
	list := slices.Clone(texts[:6])
	for _, file := range files[:4] {
		text, err := os.ReadFile(file)
		expect.OK(t, err)
		list = append(list, string(text))
	}
	e := newBPE()
	for _, text := range list {
		want, err := e.encode(nil, text)
		expect.OK(t, err)
		if got, err := GPT2Vocabulary().Prompt(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%.60q: %d tokens, want %d (%v)", text, len(got), len(want), err)
		}
	}
}

func TestOpenVocabularyRefuses(t *testing.T) {
	const letters = `{"a": 0, "b": 1, "ab": 2}`
	for _, c := range []struct{ vocab, merges, want string }{
		{"[]", "", "vocab.json: json: cannot unmarshal"},
		{`{"a": 0`, "", "vocab.json: unexpected end"},
		{`{"a": 0, "b": 1048576}`, "", `vocab.json: token "b" has id 1048576, want each id at most once`},
		{`{"a": 0, "b": 0}`, "", `token "b" has id 0`},
		{`{"a": -1}`, "", `token "a" has id -1`},
		{letters, "#version: 0.2\na b\nb a\n", `merges.txt: line 3: "b a": want two tokens of the vocabulary that make a third`},
		{letters, "a b\na b\n", `merges.txt: line 2: "a b": stands twice`},
		{letters, "ab", `merges.txt: line 1: "ab"`},
	} {
		dir := t.TempDir()
		expect.OK(t, os.WriteFile(filepath.Join(dir, "vocab.json"), []byte(c.vocab), 0o600))
		expect.OK(t, os.WriteFile(filepath.Join(dir, "merges.txt"), []byte(c.merges), 0o600))
		if _, err := OpenVocabulary(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), dir) {
			t.Errorf("%s, %q: error %v, want %q", c.vocab, c.merges, err, c.want)
		}
	}
	if _, err := OpenVocabulary(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: error %v", err)
	}
	v, err := ParseTokenizer("", map[string][]byte{data.VocabFile: []byte(letters), data.MergesFile: {}})
	expect.OK(t, err)
	if _, err := v.Prompt("abc"); err == nil || err.Error() != "byte 2, 0x63: the vocabulary has no token for it" {
		t.Errorf("error %v", err)
	}
}

func TestVocabularyOf(t *testing.T) {
	t.Chdir(t.TempDir())
	expect.OK(t, os.WriteFile("text.bin", []byte("a text"), 0o600))
	expect.OK(t, os.WriteFile("tokens.bin", []byte{1, 0, 2, 0}, 0o600))
	for _, c := range []struct {
		path  string
		vocab int
		want  int // tokens, 0 if they are not known
	}{
		{"", 8192, 256}, {"text.bin", 300, 256}, {"corpus.txt", 256, 256},
		{"tokens.bin", 50257, 50257}, {"gone.bin", 50304, 50257}, {"tokens.bin", 32000, 0}, {"tokens.bin", 52000, 0},
	} {
		v, err := VocabularyOf(c.path, c.vocab)
		if (err != nil) != (c.want == 0) || err == nil && v.Size() != c.want {
			t.Errorf("%q, %d tokens: %v, want %d", c.path, c.vocab, err, c.want)
		}
	}
}

// FuzzVocabulary: files are refused, or make a vocabulary whose tokens are all its
// own.
func FuzzVocabulary(f *testing.F) {
	f.Add([]byte(`{"a": 0, "b": 1, "ab": 2, "Ġ": 3}`), "#version: 0.2\na b\n", "ab ba")
	f.Fuzz(func(t *testing.T, vocab []byte, merges, text string) {
		v, err := ParseTokenizer("", map[string][]byte{data.VocabFile: vocab, data.MergesFile: []byte(merges)})
		if err != nil {
			return
		}
		tokens, err := v.Prompt(text)
		if err != nil {
			return
		}
		back := ""
		for _, token := range tokens {
			back += v.Text(token)
		}
		if back != text {
			t.Fatalf("%q comes back as %q", text, back)
		}
	})
}

// The name of a special token in a prompt is the token, whatever the tokenizer is and whichever
// file names it. In a document the name is text. transformers 5.12.1 has the same ids for the files
// of vocab.json and for the token that only the settings name.
func TestPromptsHaveSpecialTokens(t *testing.T) {
	letters := map[string][]byte{data.VocabFile: []byte(`{"a": 0, "<": 1, "s": 2, ">": 3, "<s>": 4, "<|endoftext|>": 5}`), data.MergesFile: nil}
	with := func(files map[string][]byte, name, text string) map[string][]byte {
		all := maps.Clone(files)
		all[name] = []byte(text)
		return all
	}
	fallback := map[string][]byte{data.TokenizerFile: charactersText(t, append(specialPieces(), tinyPieces...), map[string]string{"added_tokens": llamaAdded})}
	unlisted := map[string][]byte{data.TokenizerFile: charactersText(t, append(specialPieces(), tinyPieces...), map[string]string{"added_tokens": "[]"})}
	levels := map[string][]byte{data.TokenizerFile: tokenizerText(t, map[string]string{"added_tokens": `[{"id": 260, "content": "<s>", "special": true}]`})}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  []int32 // of "a<s>"
	}{
		{"tokenizer.json of bytes", levels, []int32{'a', 260}},
		{"tokenizer.json of characters", fallback, []int32{1, 266, 3 + 'a', 1}},
		{"its special tokens in the settings", with(unlisted, data.SettingsFile, `{"bos_token": "<s>", "eos_token": "</s>"}`), []int32{1, 266, 3 + 'a', 1}},
		{"tokenizer.model", map[string][]byte{data.PieceFile: tinyModel()}, []int32{1, 266, 3 + 'a', 1}},
		{"vocab.json", letters, []int32{0, 1, 2, 3}},
		{"vocab.json, named", with(letters, data.SettingsFile, `{"add_bos_token": false, "pad_token": null, "bos_token": "<s>"}`), []int32{0, 4}},
		{"vocab.json, an object", with(letters, data.SettingsFile, `{"cls_token": {"__type": "AddedToken", "content": "<s>"}}`), []int32{0, 4}},
		{"vocab.json, a list", with(letters, data.SpecialFile, `{"additional_special_tokens": ["<x>", "<s>"]}`), []int32{0, 4}},
		{"vocab.json, added", with(letters, data.SettingsFile, `{"added_tokens_decoder": {"4": {"content": "<s>", "special": true}}}`), []int32{0, 4}},
	} {
		v, err := ParseTokenizer("", c.files)
		expect.OK(t, err)
		if got, err := v.Prompt("a<s>"); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v (%v)", c.name, got, c.want, err)
		}
		v.End = 0
		x, err := v.Tokenizer()
		expect.OK(t, err)
		special := c.want[len(c.want)-1]
		if got := encodedBy(t, x, "a<s>"); special != 3 && slices.Contains(got, special) {
			t.Errorf("%s: a document has tokens %v", c.name, got)
		}
	}
	for name, c := range map[string]struct {
		v    *Vocabulary
		want int // tokens
	}{"gpt2": {GPT2Vocabulary(), 2}, "bytes, which are never special": {Bytes(), 14}} {
		if got, err := c.v.Prompt("a" + gpt2End); err != nil || len(got) != c.want {
			t.Errorf("%s: %v, want %d tokens (%v)", name, got, c.want, err)
		}
	}
}
