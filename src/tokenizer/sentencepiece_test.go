package tokenizer

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// A protocol buffer, written without the library that reads it: a tag (number
// times 8 plus 0 for a varint, 2 for bytes, 5 for four bytes), then the value.

func pbNumber(number int, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number)<<3), value)
}

func pbBytes[T string | []byte](number int, value T) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number)<<3|2), uint64(len(value))), value...)
}

func pbFloat(number int, value float32) []byte {
	return binary.LittleEndian.AppendUint32(binary.AppendUvarint(nil, uint64(number)<<3|5), math.Float32bits(value))
}

// spPiece is a piece of a vocabulary; kind 0 is left out of the file, and
// means 1, normal.
type spPiece struct {
	text  string
	score float32
	kind  uint64
}

func (p spPiece) message() []byte {
	m := append(pbBytes(1, p.text), pbFloat(2, p.score)...)
	if p.kind != 0 {
		m = append(m, pbNumber(3, p.kind)...)
	}
	return pbBytes(1, m)
}

// specialPieces are the first pieces of LLaMA's vocabulary: ids 0 to 258.
func specialPieces() []spPiece {
	list := []spPiece{{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}}
	for b := range 256 {
		list = append(list, spPiece{fmt.Sprintf("<0x%02X>", b), 0, 6})
	}
	return list
}

// spModel returns a model file with LLaMA's settings, then some more.
func spModel(list []spPiece, more ...[]byte) []byte {
	var raw []byte
	for _, p := range list {
		raw = append(raw, p.message()...)
	}
	trainer := append(pbNumber(3, 2), pbNumber(35, 1)...) // BPE, byte fallback
	normalizer := slices.Concat(pbBytes(1, "identity"), pbNumber(3, 1), pbNumber(4, 0))
	raw = append(append(raw, pbBytes(2, trainer)...), pbBytes(3, normalizer)...)
	return append(raw, slices.Concat(more...)...)
}

// tinyPieces follow the special ones: ids 259 to 270.
var tinyPieces = []spPiece{
	{"▁t", 0, 0}, {"he", -1, 0}, {"▁the", -2, 0}, {"▁▁", -3, 0}, {"er", -4, 0}, {"▁▁▁▁", -5, 0},
	{"<sep>", 0, 4}, {"▁", -6, 0}, {"t", -7, 0}, {"h", -8, 0}, {"e", -9, 0}, {"r", -10, 0},
}

func tinyModel() []byte { return spModel(append(specialPieces(), tinyPieces...)) }

// encodedBy returns the ids of a document, without the one that ends it.
func encodedBy(t testing.TB, x Tokenizer, text string) []int32 {
	t.Helper()
	tokens, err := x.encoder().encode(nil, x.leads.before(text, 0)+text)
	expect.OK(t, err)
	return tokens
}

func TestSentencePieceKnownIDs(t *testing.T) {
	x, err := newSentencePiece("tiny.model", tinyModel())
	expect.OK(t, err)
	if x.Vocab != 271 || x.endOfText != 2 {
		t.Errorf("vocabulary %d, end of text %d", x.Vocab, x.endOfText)
	}
	const bytes = 3                             // id of the byte 0
	for text, want := range map[string][]int32{ // worked out by hand; every text is given a space
		"the":     {261},
		"there":   {261, 270, 269},                   // re is no piece
		"her":     {266, 260, 270},                   // he before er
		"ter":     {259, 263},                        // ▁t, er
		"  the":   {262, 261},                        // ▁t and he and ▁the before ▁▁
		"\n":      {266, bytes + 10},                 // no piece
		"é":       {266, bytes + 0xc3, bytes + 0xa9}, // nor this
		"t<sep>t": {259, 265, 267},
		"<s>":     {266, bytes + '<', bytes + 's', bytes + '>'}, // text, not the special piece
		"▁":       {262},                                        // read as a space
		// Two longest pieces side by side, which the library has no room for.
		strings.Repeat(" ", 16): {264, 264, 264, 264, 266},
	} {
		if got := encodedBy(t, x, text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Without the prefix that the model may ask for, and with another end of text.
func TestSentencePieceSettings(t *testing.T) {
	x, err := newSentencePiece("m", spModel(append(specialPieces(), tinyPieces...), pbBytes(3, pbNumber(3, 0)), pbBytes(2, pbBytes(47, "<s>"))))
	expect.OK(t, err)
	if got := encodedBy(t, x, "the"); !slices.Equal(got, []int32{267, 260}) || x.endOfText != 1 {
		t.Errorf("ids %v, end of text %d", got, x.endOfText)
	}
}

// dumbBPE encodes by the definition: of all neighbours that are a piece
// together, join those of the best score, the first of equals, until none are.
func dumbBPE(list []spPiece, text string) []int32 {
	ids, scores := map[string]int32{}, map[string]float32{}
	for id, p := range list {
		ids[p.text] = int32(id)
		if p.kind == 0 {
			scores[p.text] = p.score
		}
	}
	var parts []string
	for _, r := range strings.ReplaceAll(text, " ", "▁") {
		parts = append(parts, string(r))
	}
	for {
		best := -1
		for i := range len(parts) - 1 {
			score, ok := scores[parts[i]+parts[i+1]]
			if ok && (best < 0 || score > scores[parts[best]+parts[best+1]]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		parts = slices.Replace(parts, best, best+2, parts[best]+parts[best+1])
	}
	var out []int32
	for _, part := range parts {
		if id, ok := ids[part]; ok {
			out = append(out, id)
			continue
		}
		for _, b := range []byte(part) {
			out = append(out, 3+int32(b))
		}
	}
	return out
}

// randomPieces grows a vocabulary over a few characters by joining pieces.
func randomPieces(rnd *rand.Rand, alphabet []string) []spPiece {
	list := specialPieces()
	known := map[string]bool{}
	var texts []string
	add := func(text string) {
		if !known[text] {
			known[text] = true
			texts = append(texts, text)
			list = append(list, spPiece{text, -float32(rnd.IntN(12)), 0}) // with ties
		}
	}
	for _, c := range alphabet[:1+rnd.IntN(len(alphabet))] {
		add(c)
	}
	for range rnd.IntN(20) {
		add(texts[rnd.IntN(len(texts))] + texts[rnd.IntN(len(texts))])
	}
	return list
}

// Vocabularies of all kinds are tested, including some that join spaces to the text before them.
// Text is encoded piece by piece and divided at places that cut returns. The ids equal those that
// the definition gives for the whole text.
func TestSentencePieceAgreesWithTheDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	alphabet := []string{"a", "▁", "b", "é", "\n", "中"}
	for range 300 {
		list := randomPieces(rnd, alphabet)
		x, err := newSentencePiece("m", spModel(list))
		expect.OK(t, err)
		var text strings.Builder
		for range rnd.IntN(60) {
			text.WriteString(strings.ReplaceAll(alphabet[rnd.IntN(len(alphabet))], "▁", " "))
		}
		whole := x.leads.before(text.String(), 0) + text.String()
		want := dumbBPE(list, whole)
		for _, position := range []int{0, x.cut([]byte(whole), 0)} {
			e := x.encoder()
			got, err := e.encode(nil, whole[:position])
			if err == nil {
				got, err = e.encode(got, whole[position:])
			}
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%q cut at %d, pieces %v: %v, want %v; %v", whole, position, list[259:], got, want, err)
			}
		}
	}
}

func TestSentencePieceRefuses(t *testing.T) {
	list := append(specialPieces(), tinyPieces...)
	last := func(p spPiece) []byte { return spModel(append(slices.Clip(list), p)) }
	trainer := func(f []byte) []byte { return spModel(list, pbBytes(2, f)) }
	normalizer := func(f []byte) []byte { return spModel(list, pbBytes(3, f)) }
	for _, c := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"empty", nil, "m: no pieces: no sentencepiece model"},
		{"text", []byte("a model?"), "m: byte 0: no sentencepiece model: field 12 is malformed or cut short"},
		{"a field that ends beyond the file", []byte{1<<3 | 2, 200, 1}, "m: byte 0: no sentencepiece model: field 1 is malformed or cut short"},
		{"a length that overflows", append([]byte{1<<3 | 2}, binary.AppendUvarint(nil, math.MaxUint64)...), "m: byte 0: no sentencepiece model: field 1 is malformed or cut short"},
		{"within a piece", append(tinyModel(), pbBytes(1, "\x0a\x09")...), fmt.Sprintf("m: byte %d: no sentencepiece model: field 1 is malformed or cut short", len(tinyModel())+2)},
		{"an empty piece", last(spPiece{"", 0, 0}), "piece 271: want 1 to 1024 bytes of UTF-8"},
		{"a piece too long", last(spPiece{strings.Repeat("x", 1025), 0, 0}), "piece 271: want 1 to 1024 bytes of UTF-8"},
		{"a piece not UTF-8", last(spPiece{"\xff", 0, 0}), "piece 271: want 1 to 1024 bytes of UTF-8"},
		{"a piece twice", last(spPiece{"he", 0, 0}), `piece 271: "he" stands twice`},
		{"an unused piece", last(spPiece{"x", 0, 5}), "piece 271: type 5 is not supported"},
		{"no number", last(spPiece{"x", float32(math.NaN()), 0}), "piece 271: its score is no number"},
		{"no byte", last(spPiece{"<0xag>", 0, 6}), `piece 271: "<0xag>", want a byte as <0x0A>`},
		{"two unknown", last(spPiece{"x", 0, 2}), "m: 2 pieces stand for the unknown, want 1"},
		{"none unknown", spModel(list[1:]), "m: 0 pieces stand for the unknown, want 1"},
		{"a byte is missing", spModel(append(slices.Clone(list[:5]), list[6:]...)), "m: 255 pieces are bytes, want 256"},
		{"unigram", trainer(pbNumber(3, 1)), "m: trainer_spec.model_type: "},
		{"no byte fallback", trainer(pbNumber(35, 0)), "m: trainer_spec.byte_fallback: "},
		{"suffixes", trainer(pbNumber(24, 1)), "m: trainer_spec.treat_whitespace_as_suffix: "},
		{"no end", trainer(pbBytes(47, "he")), `m: no control piece "he" (trainer_spec.eos_piece)`},
		{"normalised", normalizer(pbBytes(2, "x")), "m: normalizer_spec.precompiled_charsmap: "},
		{"spaces removed", normalizer(pbNumber(4, 1)), "m: normalizer_spec.remove_extra_whitespaces: "},
		{"spaces not escaped", normalizer(pbNumber(5, 0)), "m: normalizer_spec.escape_whitespaces: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newSentencePiece("m", c.raw)
			if err == nil || !strings.HasPrefix(err.Error(), "m: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	whole := tinyModel()
	for n := range whole {
		if _, err := newSentencePiece("m", whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a model", n, len(whole))
		}
	}
}

func TestOpenSentencePieceRefuses(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.model")
	expect.OK(t, os.WriteFile(large, nil, 0o600))
	expect.OK(t, os.Truncate(large, maxModel+1))
	for path, want := range map[string]string{
		large:                         large + ": 33554433 bytes, want at most 33554432",
		dir:                           dir + ": a directory, want a regular file",
		filepath.Join(dir, "a.model"): "open " + filepath.Join(dir, "a.model") + ": no such file or directory",
	} {
		if _, err := OpenSentencePiece(path); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// Prepared in parts, on any number of workers, files are their ids whole.
func TestPrepareSentencePiece(t *testing.T) {
	x, err := newSentencePiece("tiny.model", tinyModel())
	expect.OK(t, err)
	texts := map[string]string{"a.txt": strings.Repeat("the other  there\nher é", block/8), "b.txt": "the", "c.txt": " "}
	dir := expect.Tree(t, texts)
	var want []int32
	for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
		want = append(append(want, encodedBy(t, x, texts[name])...), 2)
	}
	for _, workers := range []int{1, 3} {
		p := Preparation{Keys: []string{"text"}, Tokenizer: x, Inputs: []string{dir}, Output: filepath.Join(t.TempDir(), "o.bin"), Format: data.Megatron, Workers: workers}
		if _, err := p.Run(context.Background(), func(int64, int64) {}); err != nil {
			t.Fatal(err)
		}
		f, tokens := all(t, p.Output)
		if !slices.Equal(tokens, want) || f.Documents != 3 || f.Type() != "u16" {
			t.Errorf("%d workers: %d ids of %s in %d documents, want %d of u16 in 3", workers, len(tokens), f.Type(), f.Documents, len(want))
		}
	}
}

// A model is refused, or text has the same ids piece by piece and whole.
func FuzzSentencePiece(f *testing.F) {
	tiny := tinyModel()
	for _, text := range []string{"the other", "  \n\té 中", "t<sep>t", strings.Repeat(" ", 70), "", "▁"} {
		f.Add(tiny, text)
	}
	f.Add(spModel(append(specialPieces(), spPiece{"a▁", -1, 0}, spPiece{"▁a▁", -1, 0}, spPiece{"é中", 1, 4})), "a a é中 a")
	f.Add(tiny[:len(tiny)-1], "")
	f.Add(spModel(specialPieces()[1:]), "")
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		x, err := newSentencePiece("m", raw)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		got := encodedBy(t, x, text)
		if text = x.leads.before(text, 0) + text; text == "" {
			return
		}
		want, err := x.encoder().ask(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: ids %v, whole %v; %v", text, got, want, err)
		}
		if position := x.cut([]byte(text), 0); position > 0 {
			a, _ := x.encoder().ask(text[:position])
			b, _ := x.encoder().ask(text[position:])
			if !slices.Equal(append(a, b...), want) {
				t.Errorf("%q cut at %d: ids %v %v, whole %v", text, position, a, b, want)
			}
		}
	})
}

// gpt2Pieces returns the 32,000 first ids of GPT-2 as pieces: a real
// vocabulary in the order of its merges, as LLaMA's is.
func gpt2Pieces(t testing.TB) []spPiece {
	list, known := specialPieces(), map[string]bool{}
	for id := range uint(32000) {
		text, err := gpt2().Decode([]uint{id})
		expect.OK(t, err)
		if text = strings.ReplaceAll(text, " ", "▁"); utf8.ValidString(text) && !known[text] {
			known[text] = true
			list = append(list, spPiece{text, -float32(id), 0})
		}
	}
	return list
}
