package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// tokenizerText returns tokenizer.json of bytes and three merges, with members set
// to JSON by their paths.
func tokenizerText(t *testing.T, set map[string]string) []byte {
	t.Helper()
	v := Bytes()
	v.merges = make(map[[2]int32]merge)
	for _, word := range []string{"ab", "abc", "  "} {
		last := len(word) - 1
		v.merges[[2]int32{v.ids[word[:last]], v.ids[word[last:]]}] = merge{len(v.merges), int32(len(v.tokens))}
		v.add(word)
	}
	v.add("cab") // no merge makes it
	files, err := v.Files(8)
	expect.OK(t, err)
	return setMembers(t, files["tokenizer.json"], set)
}

// setMembers returns tokenizer.json with members set to JSON by their paths.
func setMembers(t *testing.T, file []byte, set map[string]string) []byte {
	t.Helper()
	var all map[string]any
	expect.OK(t, json.Unmarshal(file, &all))
	for path, source := range set {
		var value any
		expect.OK(t, json.Unmarshal([]byte(source), &value))
		at, names := all, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			at = at[name].(map[string]any)
		}
		at[names[len(names)-1]] = value
	}
	text, err := json.Marshal(all)
	expect.OK(t, err)
	return text
}

// split returns a Sequence that cuts a text with a regular expression.
func split(t *testing.T, pattern string) string {
	t.Helper()
	quoted, err := json.Marshal(pattern)
	expect.OK(t, err)
	return `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": ` + string(quoted) + `}, "behavior": "Isolated", "invert": false},
		{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}`
}

const (
	added     = `[{"id": 260, "content": "<a>", "special": true}, {"id": 261, "content": "<a>b", "special": true}, {"id": 262, "content": "b<", "normalized": true}]`
	beginning = `{"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}},
		{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"x": {"id": "x", "ids": [7, 8], "tokens": ["x", "y"]}}}]}`
)

func TestTokenizerJSON(t *testing.T) {
	for _, c := range []struct {
		name string
		set  map[string]string
		text string
		want []int32
	}{
		{"merges", nil, "abc  cab", []int32{257, 32, 32, 99, 256}},
		{"a later merge makes what an earlier one takes", map[string]string{"model.merges": `["ab c", "a b"]`}, "abc", []int32{257}},
		{"tokens behind the text are left to who ends it", map[string]string{"post_processor": `{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}],
			"special_tokens": {"x": {"id": "x", "ids": [9]}}}`}, "ab", []int32{256}},
		{"pairs", map[string]string{"model.merges": `[["a", "b"]]`}, "abc", []int32{256, 99}},
		{"GPT-2's regular expression", map[string]string{"pre_tokenizer": split(t, gpt2Pattern)}, "abc   cab", []int32{257, 258, 32, 99, 256}},
		{"Llama 3's", map[string]string{"pre_tokenizer": split(t, llamaPattern)}, "(abc", []int32{40, 257}},
		{"a piece that is a token", map[string]string{"model.ignore_merges": "true"}, "cab ab", []int32{259, 32, 256}},
		{"added tokens: the first, the longest, those of the other set later", map[string]string{"added_tokens": added}, "ab<a>ab<a>bb<", []int32{256, 260, 256, 261, 262}},
		{"tokens before the text", map[string]string{"post_processor": beginning}, "ab", []int32{7, 8, 256}},
	} {
		v, err := parseTokenizer(tokenizerText(t, c.set))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, err := v.Prompt(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q is %v, want %v (%v)", c.name, c.text, got, c.want, err)
		}
	}
	v, err := parseTokenizer(tokenizerText(t, map[string]string{"added_tokens": added}))
	expect.OK(t, err)
	if v.Size() != 263 || v.Text(261) != "<a>b" || v.Text(258) != "  " || v.End != -1 {
		t.Errorf("%d tokens, %q, %q, end %d", v.Size(), v.Text(261), v.Text(258), v.End)
	}
}

// Ids may have holes. tokenizers 0.23.1 gives <a> the id 100 as the vocabulary says, and <b> the
// number of tokens in the vocabulary.
func TestTokenizerJSONWithHoles(t *testing.T) {
	v, err := parseTokenizer(tokenizerText(t, map[string]string{
		"model.vocab": `{"a": 0, "b": 7, "ab": 50, "<a>": 100}`, "model.merges": `["a b"]`,
		"added_tokens": `[{"id": 100, "content": "<a>", "special": true}, {"id": 4, "content": "<b>", "special": true}]`,
	}))
	expect.OK(t, err)
	got, err := v.Prompt("abb<a><b>a")
	if want := []int32{50, 7, 100, 4, 0}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want %v (%v)", got, want, err)
	}
	if v.Size() != 101 || v.Text(50) != "ab" || v.Text(100) != "<a>" || v.Text(99) != "" {
		t.Errorf("%d tokens, %q, %q, %q", v.Size(), v.Text(50), v.Text(100), v.Text(99))
	}
}

// Llama 3's special tokens: one before every text, those in a text as they are, and the one
// that ends texts is known.
func TestTokenizerJSONOfLlama(t *testing.T) {
	v, err := parseTokenizer(tokenizerText(t, map[string]string{
		"model.ignore_merges": "true", "pre_tokenizer": split(t, llamaPattern),
		"added_tokens": `[{"id": 260, "content": "<|begin_of_text|>", "special": true}, {"id": 261, "content": "<|end_of_text|>", "special": true}, {"id": 262, "content": "<|eot_id|>", "special": true}]`,
		"post_processor": `{"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
			{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
			"special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [260], "tokens": ["<|begin_of_text|>"]}}}]}`,
	}))
	expect.OK(t, err)
	got, err := v.Prompt("abc<|eot_id|>cab<|end_of_text|><|begin_of_text|>")
	if want := []int32{260, 257, 262, 259, 261, 260}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want %v (%v)", got, want, err)
	}
	if v.End != 261 || v.Size() != 263 || v.Text(262) != "<|eot_id|>" {
		t.Errorf("ends with %d of %d, %q", v.End, v.Size(), v.Text(262))
	}
}

// The expected pieces come from the regular expression in Node 20, whose \s, \p{L} and \p{N} are
// Unicode's.
func TestLlamaPiece(t *testing.T) {
	for _, want := range [][]string{
		{"It", "'s", " WE", "'LL", " o", "'Clock", " '", "ſt"},
		{"x", "=", "123", "45", ";", " y", " ", "½"},
		{" ", " two", "  ", " spaces", " "},
		{"a", "\n\n", " ", " b", "\r\n", " \t", " c"},
		{"(word", ")", " !!\n\n", "next"},
		{"\u00a0naïve", "\u2003", " 東京", "!"},
		{"'\n"},
		{" \n", "'d"},
		{"3", ".", "14", "\t", "\tx"},
		{"e", "\u0301", " ـ"},
		{".", " "},
	} {
		text := strings.Join(want, "")
		if got := patterns[llamaPattern].pieces(text); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A tokenizer that this package cannot follow exactly is refused. The error names the feature.
func TestTokenizerJSONRefuses(t *testing.T) {
	for _, c := range []struct{ path, value, want string }{
		{"model.type", `"Unigram"`, `model: type "Unigram" is not supported, want BPE`},
		{"model.dropout", `0.1`, "model: dropout"},
		{"model.continuing_subword_prefix", `"##"`, "model: continuing_subword_prefix"},
		{"model.end_of_word_suffix", `"</w>"`, "model: end_of_word_suffix"},
		{"model.vocab", `{"a": 1048576}`, `model: vocab: token "a" has id 1048576, want each id at most once, from 0 to 1048575`},
		{"model.vocab", `{"a": 1, "b": 1}`, `token "b" has id 1, want each id at most once`},
		{"model.vocab", `{"b": 0, "a": 2147483648}`, `model: vocab: token "a" has id 2147483648, want each id at most once, from 0 to 1048575`},
		{"model.vocab", `{"a": 1e30}`, "model: vocab: …number 1e+30, want a whole number in range"},
		{"model.vocab", `[]`, "model: vocab: array, want an object"},
		{"model.vocab", `null`, "model: merges: 0: "},
		{"model.merges", `["a  b"]`, `model: merges: 0: ["a" "" "b"]: want two tokens`},
		{"model.merges", `["a z"]`, `model: merges: 0: ["a" "z"]: want two tokens of the vocabulary that make a third`},
		{"model.merges", `["a b", "a b"]`, `model: merges: 1: ["a" "b"]: stands twice`},
		{"model.merges", `7`, "model: merges: number, want a list"},
		{"normalizer", `{"type": "NFKC"}`, "normalizer: NFKC: this one is not supported, want NFC or null"},
		{"normalizer", `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}`, "normalizer: Lowercase: this one is not supported, want NFC or null"},
		{"decoder", `{"type": "Metaspace"}`, "decoder: this one is not supported, want ByteLevel"},
		{"decoder", `null`, "decoder: "},
		{"pre_tokenizer", `null`, "pre_tokenizer: this one is not supported"},
		{"pre_tokenizer", `{"type": "Whitespace"}`, "pre_tokenizer: this one is not supported"},
		{"pre_tokenizer.add_prefix_space", `true`, "pre_tokenizer: add_prefix_space is not supported, want false"},
		{"pre_tokenizer.use_regex", `false`, "pre_tokenizer: use_regex: want true"},
		{"pre_tokenizer", split(t, `\p{L}+`), `pre_tokenizer: Split: pattern map["Regex":"\\p{L}+"] is not supported`},
		{"pre_tokenizer", strings.Replace(split(t, llamaPattern), "Isolated", "Removed", 1), `pre_tokenizer: Split: behavior "Removed"`},
		{"post_processor", `{"type": "BertProcessing"}`, `post_processor: type "BertProcessing" is not supported`},
		{"post_processor", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}`, "post_processor: single: 0 texts, want one"},
		{"post_processor", strings.Replace(beginning, "[7, 8]", "[7, 300]", 1), "post_processor: token 300 of 260"},
		{"added_tokens", `[{"id": 260, "content": "x y", "lstrip": true}]`, `added_tokens: 260, "x y": want a text, and neither`},
		{"added_tokens", `[{"id": 261, "content": "x y"}]`, `added_tokens: 0, "x y": id 261, want 260 as tokenizers number it, or the token in the vocabulary`},
		{"added_tokens", `[{"id": 2147483648, "content": "x y"}]`, "added_tokens.…id: number 2147483648, want a whole number in range"},
		{"added_tokens", `[{"id": 5, "content": "abc"}]`, `added_tokens: 0, "abc": id 5, want 257 as it has already`},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "tokenizer.json")
		expect.OK(t, os.WriteFile(path, tokenizerText(t, map[string]string{c.path: c.value}), 0o600))
		begin, end, _ := strings.Cut(c.want, "…") // from Go 1.27 on the path in a JSON text is longer
		if _, err := OpenVocabulary(dir); err == nil || !strings.HasPrefix(err.Error(), path+": "+begin) || !strings.Contains(err.Error(), end) {
			t.Errorf("%s %s: error %v, want %q", c.path, c.value, err, c.want)
		}
	}
}

// Every file of a tokenizer that can name a special token names it.
func TestFilesNameTheSpecialToken(t *testing.T) {
	files, err := GPT2Vocabulary().Files(1024)
	expect.OK(t, err)
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} {
		if !strings.Contains(string(files[name]), `"<|endoftext|>"`) {
			t.Errorf("%s: %.200s", name, files[name])
		}
	}
	var settings struct { // AddedToken of Hugging Face's tokenizers has no id: the id is the key
		Added map[int32]map[string]any `json:"added_tokens_decoder"`
	}
	expect.OK(t, json.Unmarshal(files["tokenizer_config.json"], &settings))
	want := map[string]any{"content": "<|endoftext|>", "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true}
	if !reflect.DeepEqual(settings.Added, map[int32]map[string]any{data.GPT2End: want}) {
		t.Errorf("added_tokens_decoder: %v", settings.Added)
	}
	files, err = Bytes().Files(1024)
	expect.OK(t, err)
	if want := []string{"merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"}; !slices.Equal(slices.Sorted(maps.Keys(files)), want) {
		t.Errorf("of bytes: %v", slices.Sorted(maps.Keys(files)))
	}
	ids, err := GPT2Vocabulary().Prompt("a<|endoftext|>b")
	if want := []int32{64, data.GPT2End, 65}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("%v, want %v (%v)", ids, want, err)
	}
}

// FuzzTokenizerJSON: a file is refused, or makes a vocabulary whose tokens give the text back,
// except for tokens that it sets before the text.
func FuzzTokenizerJSON(f *testing.F) {
	f.Add([]byte(`{"added_tokens": [{"id": 1, "content": "b"}], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
		"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`), "abba")
	f.Fuzz(func(t *testing.T, source []byte, text string) {
		v, err := parseTokenizer(source)
		if err != nil {
			return
		}
		tokens, err := v.Prompt(text)
		if err != nil {
			return
		}
		back := ""
		for _, token := range tokens[len(v.begin):] {
			back += v.Text(token)
		}
		if back != text {
			t.Fatalf("%q comes back as %q", text, back)
		}
	})
}
