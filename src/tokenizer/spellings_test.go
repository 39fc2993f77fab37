package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// documentCase is a line of testdata/patterns/documents.jsonl: added tokens of the tokenizer there,
// and ids that tokenizers 0.23.1 gives. In documents its setting encode_special_tokens is on.
type documentCase struct {
	Normalizer json.RawMessage
	Added      json.RawMessage
	Texts      []struct {
		Text             string
		Document, Prompt []int32
	}
}

// Added tokens that are not special are found in documents, and in documents that are divided
// anywhere. Prompts have all added tokens.
func TestDocumentPublishedIDs(t *testing.T) {
	source, err := os.ReadFile("testdata/patterns/tokenizer.json")
	expect.OK(t, err)
	lines, err := os.ReadFile("testdata/patterns/documents.jsonl")
	expect.OK(t, err)
	moved := 0 // places that are inside of a token
	for line := range strings.Lines(string(lines)) {
		var c documentCase
		expect.OK(t, json.Unmarshal([]byte(line), &c))
		v, err := parseTokenizer(setMembers(t, source, map[string]string{"normalizer": string(c.Normalizer), "added_tokens": string(c.Added)}))
		expect.OK(t, err)
		x, err := v.Tokenizer()
		expect.OK(t, err)
		for _, d := range c.Texts {
			if got, err := v.Prompt(d.Text); err != nil || !slices.Equal(got, d.Prompt) {
				t.Errorf("%.80s: prompt %q: %v, want %v (%v)", c.Added, d.Text, got, d.Prompt, err)
			}
			for read := range len(d.Text) + 1 {
				at := x.cut([]byte(d.Text[:read]), 0)
				if at != v.cut([]byte(d.Text[:read]), 0) {
					moved++
				}
				first := x.run(x.encoder(), work{text: d.Text[:at], first: true})
				rest := x.run(x.encoder(), work{text: d.Text[at:], first: at == 0})
				if got := append(first.tokens, rest.tokens...); !slices.Equal(got, d.Document) {
					t.Errorf("%.80s: document %q cut at %d: %v, want %v (%v, %v)", c.Added, d.Text, at, got, d.Document, first.err, rest.err)
				}
			}
		}
	}
	if moved < 100 {
		t.Errorf("%d places are inside of a token, want hundreds", moved)
	}
}

// Spellings are found as by the definition: of the spellings that begin first the longest.
func TestSpellingsAgreeWithTheDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	letters := func(most int) string {
		b := make([]byte, 1+rnd.IntN(most))
		for i := range b {
			b[i] = "abc"[rnd.IntN(3)]
		}
		return string(b)
	}
	for range 3000 {
		var s spellings
		words := make(map[string]int32)
		for id := range int32(rnd.IntN(6)) {
			word := letters(5)
			words[word] = id
			s.set(word, &addedToken{ID: id})
		}
		text := letters(30)
		for _, p := range s.apart(text, 0, false) {
			if id, ok := words[p.text]; p.token != nil && (!ok || p.token.ID != id) || p.text != text[p.at:p.at+len(p.text)] {
				t.Fatalf("%v in %q: %+v", words, text, p)
			}
			for word := range words {
				end := p.at + len(p.text)
				isLonger := p.token != nil && len(word) > len(p.text) && strings.HasPrefix(text[p.at:], word)
				at := strings.Index(text[p.at:], word)
				if isLonger || p.token == nil && at >= 0 && p.at+at < end {
					t.Fatalf("%v in %q: %+v although %q is there", words, text, p, word)
				}
			}
		}
	}
}

// An error in a document names the byte behind a token. A token that NFC may make where the text is
// cut is refused.
func TestDocumentErrors(t *testing.T) {
	const members = `"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}, "normalizer": {"type": "NFC"},
		"model": {"type": "BPE", "vocab": {"Ã": 0, "©": 1, "Ġ": 2, "<|endoftext|>": 3, "<t>": 4}, "merges": []}`
	v, err := parseTokenizer([]byte(`{"added_tokens": [{"id": 3, "content": "<|endoftext|>", "special": true}, {"id": 4, "content": "<t>"}], ` + members + `}`))
	expect.OK(t, err)
	x, err := v.Tokenizer()
	expect.OK(t, err)
	done := x.run(x.encoder(), work{text: "e\u0301<t>e\u0301 x", first: true, path: "p", offset: 100})
	if done.err == nil || done.err.Error() != "p: byte 110: 0x78: the vocabulary has no token for it" {
		t.Errorf("error %v", done.err)
	}
	v, err = parseTokenizer([]byte(`{"added_tokens": [{"id": 3, "content": "<|endoftext|>", "special": true}, {"id": 5, "content": "; b", "normalized": true}], ` + members + `}`))
	expect.OK(t, err)
	if _, err = v.Tokenizer(); err == nil || err.Error() != `added_tokens: "; b" is normalized and has a space behind another character: not supported with NFC` {
		t.Errorf("error %v", err)
	}
}
