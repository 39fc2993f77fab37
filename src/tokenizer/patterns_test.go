package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"dynmo/src/expect"
)

// stress has the characters that regular expressions and normalisation treat differently.
var stress = []string{
	"'s", "'S", "'ll", "'Re", "'", "a", "B", "Ab", "aB", "ABC", "ǅ", "ʰ", "中", "é", "e\u0301", "\u0301", "\u0327\u0301", "\u0958", "\u1100\u1161", "\u212b",
	"1", "22", "333", "4444", "55555", "½", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u0085", "\u2028", "\x7f", "'ſ", "!", "/", "!\n/\n", "🙂", "\u200d",
}

func stressText(rnd *rand.Rand, parts int) string {
	var b strings.Builder
	for range parts {
		b.WriteString(stress[rnd.IntN(len(stress))])
	}
	return b.String()
}

// pieces cuts a text into pieces.
func (p pattern) pieces(text string) (list []string) {
	for text != "" {
		n := p.piece(text)
		list, text = append(list, text[:n]), text[n:]
	}
	return list
}

// matcher returns a function that finds the matches of a regular expression with package regexp. This
// package takes the first alternative that matches, too, but knows no Unicode spaces and no lookahead.
func matcher(expression string) func(text string) []string {
	const spaces, end = `\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`, `|\s+(?!\S)|\s+`
	expression, ok := strings.CutSuffix(expression, end)
	if !ok {
		panic("tokenizer: an expression with another end")
	}
	expression = strings.ReplaceAll(strings.ReplaceAll(expression, `[^\s`, `[^`+spaces), `\s`, `[`+spaces+`]`)
	blanks := strings.ReplaceAll(`|(S+)$|(S+)S|S`, "S", "["+spaces+"]")
	compiled := regexp.MustCompile(`^(?:(` + expression + `)` + blanks + `)`)
	return func(text string) (list []string) {
		for text != "" {
			found := compiled.FindStringSubmatch(text)
			piece := cmp.Or(found[1], found[2], found[3], found[0])
			list, text = append(list, piece), text[len(piece):]
		}
		return list
	}
}

// Pieces are the matches of the regular expression, and a division at a cut changes no piece of the
// text, nor of the text in NFC.
func TestPatternsAreTheirRegularExpressions(t *testing.T) {
	if !slices.Contains([]string{"15.0.0", "17.0.0"}, unicode.Version) || norm.Version != "15.0.0" {
		t.Errorf("Unicode %s, and %s for NFC: the documentation says 15.0 or 17.0, and 15.0", unicode.Version, norm.Version)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for expression, p := range patterns {
		matches := matcher(expression)
		for range 3000 {
			text := stressText(rnd, 1+rnd.IntN(12))
			if got, want := p.pieces(text), matches(text); !slices.Equal(got, want) {
				t.Fatalf("%s\n%q: %q, want %q", expression, text, got, want)
			}
			at := p.cut([]byte(text), 0)
			for name, form := range map[string]func(string) string{"": strings.Clone, "NFC of ": nfc} {
				if got := append(p.pieces(form(text[:at])), p.pieces(form(text[at:]))...); !slices.Equal(got, p.pieces(form(text))) {
					t.Fatalf("%s\n%s%q, cut at %d: %q, want %q", expression, name, text, at, got, p.pieces(form(text)))
				}
			}
		}
	}
}

// testdata/patterns has a byte-level encoding that tokenizers 0.23.1 (with transformers 5.12.1, of
// Debian) trained. The ids are those of that library, which has Oniguruma for the expressions. Each
// text has ids for every known expression, with NFC and with an empty Sequence of normalizers.
func TestPatternsPublishedIDs(t *testing.T) {
	source, err := os.ReadFile("testdata/patterns/tokenizer.json")
	expect.OK(t, err)
	tokenizers := make(map[string]*Vocabulary)
	for name, expression := range map[string]string{"gpt2": gpt2Pattern, "llama": llamaPattern, "qwen": qwenPattern, "o200k": o200kPattern} {
		for suffix, normalizer := range map[string]string{" NFC": `{"type":"NFC"}`, "": `{"type":"Sequence","normalizers":[]}`} {
			text := setMembers(t, source, map[string]string{"pre_tokenizer": split(t, expression), "normalizer": normalizer})
			tokenizers[name+suffix], err = parseTokenizer(text)
			expect.OK(t, err)
		}
	}
	lines, err := os.ReadFile("testdata/patterns/ids.jsonl")
	expect.OK(t, err)
	for line := range strings.Lines(string(lines)) {
		var c struct {
			Text string
			IDs  map[string][]int32
		}
		expect.OK(t, json.Unmarshal([]byte(line), &c))
		if len(c.IDs) != len(tokenizers) {
			t.Fatalf("%q: %d lists of ids, want %d", c.Text, len(c.IDs), len(tokenizers))
		}
		for name, want := range c.IDs {
			if got, err := tokenizers[name].Prompt(c.Text); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %q: %v, want %v (%v)", name, c.Text, got, want, err)
			}
			x, err := tokenizers[name].Tokenizer()
			expect.OK(t, err)
			at := x.cut([]byte(c.Text), 0)
			first := x.run(x.encoder(), work{text: c.Text[:at], first: true})
			rest := x.run(x.encoder(), work{text: c.Text[at:], last: true})
			if got := append(first.tokens, rest.tokens...); c.Text != "" && !slices.Equal(got, append(slices.Clone(want), tokenizers[name].End)) {
				t.Errorf("%s: %q as a document cut at %d: %v, want %v (%v)", name, c.Text, at, got, want, errors.Join(first.err, rest.err))
			}
		}
	}
}

// NFC is that of the definition, which adds nothing to long runs of marks and joins no mark with a
// letter behind another letter. The same texts come from Python's unicodedata.
func TestNFC(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		if text := stressText(rnd, 1+rnd.IntN(12)); composed(text) != norm.NFC.String(text) || nfc(text) != composed(text) {
			t.Fatalf("%q: %q by definition, %q, want %q", text, composed(text), nfc(text), norm.NFC.String(text))
		}
	}
	for text, want := range map[string]string{
		"a" + strings.Repeat("\u0301", 40):       "á" + strings.Repeat("\u0301", 39),
		"e" + strings.Repeat("\u0301\u0327", 20): "ȩ" + strings.Repeat("\u0327", 19) + strings.Repeat("\u0301", 20),
		"\u034fe\u0301":                          "\u034fé",
		"o\u0dcf\u05ae\u0300":                    "o\u0dcf\u05ae\u0300",
		"ae\u0301bo\u0dcf\u0300 \u0dd9\u0dcf":    "aébo\u0dcf\u0300 \u0ddc",
	} {
		if got := nfc(text); got != want {
			t.Errorf("%+q: %+q, want %+q", text, got, want)
		}
	}
}

// An error names the byte of the text, not that of the text in NFC.
func TestNFCNamesTheByteOfTheText(t *testing.T) {
	v, err := parseTokenizer([]byte(`{"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
		"added_tokens": [{"id": 3, "content": "<|endoftext|>", "special": true}], "model": {"type": "BPE", "vocab": {"Ã": 0, "©": 1, "Ġ": 2}, "merges": []}}`))
	expect.OK(t, err)
	const text = "e\u0301 <|endoftext|>e\u0301 x"
	if _, err := v.Prompt(text); err == nil || err.Error() != "byte 21, 0x78: the vocabulary has no token for it" {
		t.Errorf("error %v", err)
	}
	x, err := v.Tokenizer()
	expect.OK(t, err)
	if done := x.run(x.encoder(), work{text: "e\u0301 x", first: true, path: "p", offset: 100}); done.err == nil || done.err.Error() != "p: byte 104: 0x78: the vocabulary has no token for it" {
		t.Errorf("error %v", done.err)
	}
}
