package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/data"
)

// Files returns the files that Hugging Face's tokenizers read, by name: tokenizer.json, vocab.json
// with merges.txt for older versions, and the settings of both. positions is the length of the
// longest text. It panics unless texts are cut into pieces by GPT-2's regular expression.
//
// In the vocabulary of bytes a byte ends texts. It is no special token in these files, since
// special tokens are found in texts by their spelling. Only the model's configuration names it.
func (v *Vocabulary) Files(positions int) (map[string][]byte, error) {
	if len(v.begin) > 0 || v.whole || v.bytes != nil || v.ask != nil {
		panic("tokenizer: files of a tokenizer that is not GPT-2's")
	}
	spelt := make([]string, len(v.tokens))
	for id, token := range v.tokens {
		spelt[id] = spell(token)
	}
	vocab := vocabText(spelt)
	merges := []string{} // never null
	for _, pair := range slices.SortedFunc(maps.Keys(v.merges), func(a, b [2]int32) int { return v.merges[a].rank - v.merges[b].rank }) {
		merges = append(merges, spell(v.tokens[pair[0]])+" "+spell(v.tokens[pair[1]]))
	}
	files := map[string][]byte{
		data.VocabFile:  vocab,
		data.MergesFile: []byte(strings.Join(append([]string{"#version: 0.2"}, merges...), "\n") + "\n"),
	}
	settings := map[string]any{
		"add_prefix_space": false, "bos_token": nil, "eos_token": nil, "unk_token": nil, // if absent they would be GPT-2's
		"clean_up_tokenization_spaces": false, "model_max_length": positions, "tokenizer_class": "GPT2Tokenizer",
	}
	added := []addedToken{}
	if v.End >= 0 && v.tokens[v.End] == gpt2End {
		end := addedToken{ID: v.End, Content: gpt2End, Special: true}
		added = append(added, end)
		special := map[string]any{"bos_token": gpt2End, "eos_token": gpt2End, "unk_token": gpt2End}
		maps.Copy(settings, special)
		settings["added_tokens_decoder"] = map[string]any{strconv.Itoa(int(v.End)): map[string]any{ // the id is the key only
			"content": end.Content, "lstrip": end.LStrip, "normalized": end.Normalized, "rstrip": end.RStrip, "single_word": end.SingleWord, "special": end.Special,
		}}
		files[data.SpecialFile] = indented(special)
	}
	files["tokenizer_config.json"] = indented(settings)
	files[data.TokenizerFile] = indented(v.tokenizer(added, vocab, merges))
	return files, nil
}

// vocabText returns the object with the id of every token, in the order of ids.
func vocabText(spelt []string) []byte {
	var b bytes.Buffer
	for id, token := range spelt {
		text, err := json.Marshal(token)
		if err != nil {
			panic("tokenizer: a token does not marshal")
		}
		fmt.Fprintf(&b, "%s%s: %d", map[bool]string{true: "{", false: ", "}[id == 0], text, id)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// tokenizer returns tokenizer.json.
func (v *Vocabulary) tokenizer(added []addedToken, vocab json.RawMessage, merges []string) tokenizerJSON {
	none, yes, no := "", true, false
	lines, err := json.Marshal(merges)
	if err != nil {
		panic("tokenizer: merges do not marshal")
	}
	step := func(prefix *bool, trim bool) *stepJSON {
		return &stepJSON{Type: byteLevel, AddPrefixSpace: prefix, TrimOffsets: trim, UseRegex: &yes}
	}
	return tokenizerJSON{
		Version: "1.0", Added: added,
		PreTokenizer: step(&no, true), PostProcessor: step(&yes, false), Decoder: step(&yes, true),
		Model: modelJSON{Type: "BPE", Prefix: &none, Suffix: &none, Vocab: vocab, Merges: lines},
	}
}

// indented returns a value as JSON for readers.
func indented(value any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		panic("tokenizer: settings do not marshal")
	}
	return b.Bytes()
}
