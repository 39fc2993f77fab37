package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/eliben/go-sentencepiece"
	"google.golang.org/protobuf/encoding/protowire"

	"dynmo/src/files"
)

// maxModel is the longest sentencepiece model that is read, in bytes: eight times the length with a
// vocabulary of 256,000 pieces.
const maxModel = 32 << 20

// OpenSentencePiece returns the byte-pair encoding of a sentencepiece model file like LLaMA's:
// model type BPE with byte fallback, and text that is not normalised. Documents end with the
// model's end-of-sentence piece. The beginning-of-sentence piece is not used. Errors name the file
// and, if possible, the byte.
func OpenSentencePiece(path string) (Tokenizer, error) {
	raw, err := files.Read(path, maxModel)
	if err != nil {
		return Tokenizer{}, err
	}
	return newSentencePiece(path, raw)
}

// newSentencePiece returns the tokenizer of a model. raw is the content of file.
func newSentencePiece(file string, raw []byte) (Tokenizer, error) {
	v, err := parsePieceVocabulary(file, raw)
	if err != nil {
		return Tokenizer{}, err
	}
	v.begin = nil
	return v.Tokenizer()
}

// parsePieceVocabulary returns the vocabulary of a model. raw is the content of file. Texts begin
// with the beginning-of-sentence piece, as in LLaMA.
func parsePieceVocabulary(file string, raw []byte) (*Vocabulary, error) {
	m, err := parsePieces(file, raw)
	if err != nil {
		return nil, err
	}
	library, err := sentencepiece.NewProcessor(bytes.NewReader(m.forLibrary(raw)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	v := &Vocabulary{End: m.end, tokens: m.texts, strips: m.prefix, piece: m.joints.piece, cut: m.joints.cut, pieces: m}
	for id, kind := range m.types {
		if kind == controlPiece || kind == unknownPiece {
			v.search(addedToken{ID: int32(id), Content: m.spelt[id], Special: true})
		}
	}
	v.ask = func(piece string) ([]int32, error) {
		found := library.Encode(piece)
		tokens := make([]int32, len(found))
		for i, token := range found {
			if token.ID < 0 || token.ID >= len(m.types) {
				return nil, fmt.Errorf("sentencepiece: %.100q has id %d, outside of the vocabulary", piece, token.ID)
			}
			tokens[i] = int32(token.ID)
		}
		return tokens, nil
	}
	if m.prefix {
		v.leads = led
	}
	if begin, ok := m.ids[m.bos]; ok && m.types[begin] == controlPiece {
		v.begin = []int32{begin}
	}
	return v, nil
}

// forLibrary returns the model with the additions that the library (go-sentencepiece 0.6.0) needs.
// In protocol buffers a later message extends an earlier one.
//
//   - It refuses a model that wants a space before every text, as LLaMA's does:
//     that is switched off here, and the space is ours to add.
//   - It has room for one longest piece where two such may meet: a piece of
//     twice the length follows, of spaces, which no text has by then (▁ stands
//     for each).
func (m *pieceModel) forLibrary(raw []byte) []byte {
	var normalizer, piece []byte
	for _, field := range []protowire.Number{addDummyPrefix, removeExtraWhitespaces} {
		normalizer = protowire.AppendTag(normalizer, field, protowire.VarintType)
		normalizer = protowire.AppendVarint(normalizer, 0)
	}
	piece = protowire.AppendTag(piece, pieceText, protowire.BytesType)
	piece = protowire.AppendString(piece, strings.Repeat(" ", 2*max(m.longest, utf8.UTFMax)))
	raw = protowire.AppendTag(slices.Clone(raw), normalizerSpec, protowire.BytesType)
	raw = protowire.AppendBytes(raw, normalizer)
	raw = protowire.AppendTag(raw, pieces, protowire.BytesType)
	return protowire.AppendBytes(raw, piece)
}

// joints are the pairs of characters that are neighbours in some piece of a vocabulary. Between any
// other two characters a text can be divided. A byte-pair encoding only joins characters into
// pieces of the vocabulary, in the order of scores, and other pairs do not change that order.
type joints struct {
	ascii [utf8.RuneSelf][utf8.RuneSelf]bool
	other map[[2]rune]bool
}

func newJoints() *joints { return &joints{other: make(map[[2]rune]bool)} }

// add records the pairs of neighbours in a piece. ▁ stands for the space.
func (j *joints) add(piece string) {
	before := rune(-1)
	for _, r := range strings.ReplaceAll(piece, "▁", " ") {
		switch {
		case before < 0:
		case before < utf8.RuneSelf && r < utf8.RuneSelf:
			j.ascii[before][r] = true
		default:
			j.other[[2]rune{before, r}] = true
		}
		before = r
	}
}

func (j *joints) join(a, b rune) bool {
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		return j.ascii[a][b]
	}
	if a == '▁' || b == '▁' { // like the library, which treats it as a space
		return j.join(spaced(a), spaced(b))
	}
	return j.other[[2]rune{a, b}]
}

func spaced(r rune) rune {
	if r == '▁' {
		return ' '
	}
	return r
}

// piece returns the length in bytes of the longest begin of text whose characters all join. text
// must not be empty.
func (j *joints) piece(text string) int {
	before, n := utf8.DecodeRuneInString(text)
	for n < len(text) {
		r, size := rune(text[n]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[n:])
		}
		if !j.join(before, r) {
			break
		}
		before, n = r, n+size
	}
	return n
}

// cut returns the last place in text, at from or later, between two characters that do not join. It
// returns 0 if there is none.
func (j *joints) cut(text []byte, from int) int {
	for i := len(text) - 1; i >= max(from, 1); i-- {
		if !utf8.RuneStart(text[i]) || !utf8.FullRune(text[i:]) {
			continue
		}
		before, _ := utf8.DecodeLastRune(text[:i])
		if after, _ := utf8.DecodeRune(text[i:]); !j.join(before, after) {
			return i
		}
	}
	return 0
}
