package tokenizer

import (
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// Files beside tokenizer.json and tokenizer.model add tokens of the vocabulary. A token that the
// vocabulary lacks, its spaces and a setting that makes other ids are refused by name.
func TestSettingsBeside(t *testing.T) {
	source, err := os.ReadFile("testdata/patterns/tokenizer.json")
	expect.OK(t, err)
	piece := tinyModel()
	for _, c := range []struct{ file, beside, text, want string }{
		{data.TokenizerFile, data.SettingsFile, `{"split_special_tokens": true}`, "split_special_tokens: true is not supported, want false"},
		{data.TokenizerFile, data.SettingsFile, `{"split_special_tokens": false, "pad_token": null, "eos_token": null, "add_bos_token": true}`, ""},
		{data.TokenizerFile, data.SettingsFile, `{"added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true}}}`, ""},
		{data.TokenizerFile, data.SettingsFile, `{"added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true, "rstrip": true}}}`,
			`added_tokens_decoder: 0, "<|endoftext|>": want a text, and neither single_word nor lstrip nor rstrip, which are not supported`},
		{data.TokenizerFile, data.SettingsFile, `{"added_tokens_decoder": {"400": {"content": "<pad>", "special": true}}}`,
			`added_tokens_decoder: 400, "<pad>": tokenizer.json has no such token, want a tokenizer.json that has it`},
		{data.TokenizerFile, data.SettingsFile, `{"added_tokens_decoder": {"33": {"content": "A", "lstrip": true}}}`,
			`added_tokens_decoder: 33, "A": want a text, and neither single_word nor lstrip nor rstrip, which are not supported`},
		{data.TokenizerFile, data.SpecialFile, `{"mask_token": {"content": "A", "lstrip": true}}`,
			`33, "A": want a text, and neither single_word nor lstrip nor rstrip, which are not supported`},
		{data.TokenizerFile, data.AddedFile, `{"<|endoftext|>": 0}`, ""},
		{data.TokenizerFile, data.AddedFile, `{"<pad>": 400}`, `400, "<pad>": tokenizer.json has no such token, want a tokenizer.json that has it`},
		{data.PieceFile, data.AddedFile, `{"<s>": 1, "</s>": 2, "<unk>": 0}`, ""},
		{data.PieceFile, data.AddedFile, `{"<s>": 2}`, `2, "<s>": tokenizer.model has no such token, want a tokenizer.json that has it`},
		{data.PieceFile, data.AddedFile, `{"<pad>": 271}`, `271, "<pad>": tokenizer.model has no such token, want a tokenizer.json that has it`},
		{data.PieceFile, data.SettingsFile, `{"added_tokens_decoder": {"1": {"content": "<s>", "normalized": true, "special": true}}}`, ""},
		{data.PieceFile, data.SettingsFile, `{"added_tokens_decoder": {"2": {"content": "</s>", "special": true, "lstrip": true}}}`,
			`added_tokens_decoder: 2, "</s>": want a text, and neither single_word nor lstrip nor rstrip, which are not supported`},
		{data.PieceFile, data.SettingsFile, `{"split_special_tokens": true}`, "split_special_tokens: true is not supported, want false"},
	} {
		files := map[string][]byte{c.file: map[string][]byte{data.TokenizerFile: source, data.PieceFile: piece}[c.file], c.beside: []byte(c.text)}
		_, err := ParseTokenizer("d", files)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s, %s %s: %v, want %q", c.file, c.beside, c.text, err, c.want)
		}
	}
}

// A token of the vocabulary that only added_tokens_decoder or added_tokens.json adds is found in
// documents too, unless it is special. The ids are those of transformers 5.12.1, in documents with its
// setting split_special_tokens.
func TestSettingsAddPlainTokens(t *testing.T) {
	source, err := os.ReadFile("testdata/patterns/tokenizer.json")
	expect.OK(t, err)
	for _, c := range []struct {
		beside, text     string
		prompt, document []int32
	}{
		{data.SettingsFile, `{}`, []int32{318}, []int32{318}},
		{data.SettingsFile, `{"added_tokens_decoder": {"33": {"content": "A"}}}`, []int32{33, 34}, []int32{33, 34}},
		{data.SettingsFile, `{"added_tokens_decoder": {"33": {"content": "A", "special": true}}}`, []int32{33, 34}, []int32{318}},
		{data.SettingsFile, `{"pad_token": "A", "added_tokens_decoder": {"33": {"content": "A"}}}`, []int32{33, 34}, []int32{318}},
		{data.SettingsFile, `{"extra_special_tokens": ["A"], "added_tokens_decoder": {"33": {"content": "A"}}}`, []int32{33, 34}, []int32{33, 34}},
		{data.SettingsFile, `{"pad_token": "A"}`, []int32{33, 34}, []int32{318}},
		{data.AddedFile, `{"A": 33}`, []int32{33, 34}, []int32{33, 34}},
	} {
		v, err := ParseTokenizer("d", map[string][]byte{data.TokenizerFile: source, c.beside: []byte(c.text)})
		expect.OK(t, err)
		x, err := v.Tokenizer()
		expect.OK(t, err)
		got, err := v.Prompt("AB")
		done := x.run(x.encoder(), work{text: "AB", first: true})
		if err != nil || !slices.Equal(got, c.prompt) || !slices.Equal(done.tokens, c.document) {
			t.Errorf("%s %s: %v and %v, want %v and %v (%v, %v)", c.beside, c.text, got, done.tokens, c.prompt, c.document, err, done.err)
		}
	}
}
