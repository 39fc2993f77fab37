package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// pairFiles returns vocab.json and merges.txt of testdata/patterns, with other files.
func pairFiles(t *testing.T, more map[string]string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/patterns/tokenizer.json")
	expect.OK(t, err)
	var source tokenizerJSON
	expect.OK(t, json.Unmarshal(text, &source))
	var merges [][]string
	expect.OK(t, json.Unmarshal(source.Model.Merges, &merges))
	lines := "#version: 0.2\n"
	for _, pair := range merges {
		lines += strings.Join(pair, " ") + "\n"
	}
	files := map[string][]byte{data.VocabFile: source.Model.Vocab, data.MergesFile: []byte(lines)}
	for name, text := range more {
		files[name] = []byte(text)
	}
	return files
}

// The ids are those of AutoTokenizer of transformers 5.12.1 with tokenizers 0.23.1, from a folder of
// these files.
func TestPairPublishedIDs(t *testing.T) {
	const text = "It's WE'Re e\u0301\u0301 12345 <|endoftext|> a<|im_start|>b <tool>[PAD]c<|im_end|>\n"
	gpt2 := []int32{41, 84, 296, 221, 55, 37, 7, 279, 221, 69, 257, 257, 221, 17, 18, 19, 20, 21, 221}
	qwen := []int32{41, 84, 296, 221, 55, 37, 328, 347, 257, 221, 17, 18, 19, 20, 21, 221, 0, 342}
	name := []int32{28, 92, 295, 79, 70, 84, 69, 88, 84, 92, 30} // <|endoftext|>
	start, end := []int32{28, 92, 73, 77, 63, 83, 84, 65, 82, 84, 92, 30}, []int32{28, 92, 73, 77, 63, 295, 92, 30}
	tool, pad := []int32{28, 84, 79, 79, 76, 30}, []int32{59, 48, 33, 36, 61}
	const properties = `"lstrip": false, "rstrip": false, "single_word": false, "normalized": false`
	for _, c := range []struct {
		files    map[string]string
		size     int
		end      int32
		want     [][]int32
		settings string
	}{
		{settings: `{"tokenizer_class": "GPT2Tokenizer"}`, size: 400, end: 0,
			want: [][]int32{gpt2, {0, 342}, start, {66, 221}, tool, pad, {67}, end, {199}}},
		{settings: `{"tokenizer_class": "GPT2TokenizerFast", "add_bos_token": true, "bos_token": "<|endoftext|>", "pad_token": "[PAD]", "unk_token": null}`, size: 401, end: 0,
			want: [][]int32{{0}, gpt2, {0, 342}, start, {66, 221}, tool, {400, 67}, end, {199}}},
		{settings: `{"tokenizer_class": "GPT2Tokenizer", "bos_token": null, "eos_token": null, "unk_token": null}`, size: 400, end: -1,
			want: [][]int32{gpt2, name, {342}, start, {66, 221}, tool, pad, {67}, end, {199}}},
		{settings: `{"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": false, "bos_token": null, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": null,
			"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true, ` + properties + `},
			"400": {"content": "<|im_start|>", "special": true, ` + properties + `}, "401": {"content": "<|im_end|>", "special": true, ` + properties + `},
			"402": {"content": "<tool>", "special": false, ` + properties + `}}}`, size: 403, end: 401,
			want: [][]int32{qwen, {400, 66, 221, 402}, pad, {67, 401, 199}}},
		{settings: `{"tokenizer_class": "Qwen2Tokenizer", "eos_token": null, "added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true, ` + properties + `}}}`, size: 400, end: -1,
			want: [][]int32{qwen, start, {66, 221}, tool, pad, {67}, end, {199}}},
		{settings: `{"tokenizer_class": "Qwen2Tokenizer"}`, files: map[string]string{"added_tokens.json": `{"<|im_start|>": 400, "<tool>": 401}`,
			"special_tokens_map.json": `{"eos_token": "<|im_start|>", "pad_token": {"content": "[PAD]", ` + properties + `}, "additional_special_tokens": ["<|im_end|>"]}`}, size: 404, end: 400,
			want: [][]int32{qwen, {400, 66, 221, 401, 402, 67, 403, 199}}},
		{settings: `{"tokenizer_class": "Qwen2Tokenizer", "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", ` + properties + `},
			"extra_special_tokens": {"image_token": "<tool>"}, "sep_token": "[PAD]"}`, size: 403, end: 400,
			want: [][]int32{qwen, start, {66, 221, 402, 401, 67, 400, 199}}},
	} {
		files := pairFiles(t, c.files)
		files[data.SettingsFile] = []byte(c.settings)
		v, err := ParseTokenizer("d", files)
		expect.OK(t, err)
		if got, err := v.Prompt(text); err != nil || !slices.Equal(got, slices.Concat(c.want...)) || v.Size() != c.size || v.End != c.end {
			t.Errorf("%s: %v, %d tokens, end %d, want %v, %d, %d (%v)", c.settings, got, v.Size(), v.End, slices.Concat(c.want...), c.size, c.end, err)
		}
	}
}

// A class or a setting that makes other ids is refused by name. Without a class, texts are cut as
// GPT-2's.
func TestPairSettings(t *testing.T) {
	for settings, want := range map[string]string{
		`{}`: "", `{"errors": "replace"}`: "",
		`{"tokenizer_class": "RobertaTokenizerFast"}`:                          `tokenizer_class: "RobertaTokenizerFast" is not supported with vocab.json, want one of GPT2Tokenizer, Qwen2Tokenizer, or else tokenizer.json beside it`,
		`{"add_prefix_space": true}`:                                           `add_prefix_space: true is not supported with vocab.json, want false, or else tokenizer.json beside it`,
		`{"split_special_tokens": true}`:                                       `split_special_tokens: true is not supported with vocab.json, want false, or else tokenizer.json beside it`,
		`{"added_tokens_decoder": {"500": {"content": "x y"}}}`:                `added_tokens: 0, "x y": id 500, want 400 as tokenizers number it, or the token in the vocabulary`,
		`{"mask_token": {"content": "x y", "lstrip": true}}`:                   `added_tokens: 400, "x y": want a text, and neither single_word nor lstrip nor rstrip, which are not supported`,
		`{"tokenizer_class": "Qwen2Tokenizer", "pad_token": {"content": [1]}}`: `pad_token: json: cannot unmarshal array into Go struct field addedToken.content of type string`,
	} {
		v, err := ParseTokenizer("d", pairFiles(t, map[string]string{data.SettingsFile: settings}))
		if (err == nil) != (want == "") || err != nil && err.Error() != "d/tokenizer_config.json: "+want {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
		if err == nil && (v.End != 0 || v.composes) {
			t.Errorf("%s: end %d, NFC %v", settings, v.End, v.composes)
		}
	}
}
