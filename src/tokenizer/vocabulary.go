package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"dynmo/src/data"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Vocabulary is a byte-pair encoding: it turns any text into tokens, and tokens back into bytes. It
// is byte-level (Radford et al. 2019), or works on characters like sentencepiece (Kudo & Richardson
// 2018). In the latter case a character without a token is encoded as its bytes.
type Vocabulary struct {
	End    int32              // the token that ends a text; -1 if there is none
	tokens []string           // bytes of each token
	ids    map[string]int32   // tokens that merges use or make: by their bytes or, for characters, with ▁ for a space
	merges map[[2]int32]merge // by pair of neighbours
	piece  func(text string) int
	cut    func(text []byte, from int) int           // see Tokenizer
	whole  bool                                      // a piece that is itself a token becomes this token without merges
	bytes  []int32                                   // by byte: its token, in an encoding of characters; else nil
	ask    func(piece string) (ids []int32, e error) // encodes a piece instead of merges; may be nil
	pieces *pieceModel                               // the sentencepiece model of this encoding; may be nil

	begin       []int32              // tokens before every text
	composes    bool                 // texts are put into Unicode's NFC
	leads       leading              // which texts get a leading space
	strips      bool                 // that space is dropped when tokens become text
	escapes     bool                 // the space is added, and spaces become ▁, before a text is searched for normal tokens
	added       map[int32]addedToken // tokens that texts are searched for
	raw, normal spellings            // added tokens: those searched first, and those searched after normalisation
}

// leading says which texts get a leading space.
type leading uint8

const (
	unled       leading = iota
	led                 // every part between two added tokens
	lacking             // every part that does not begin with a space
	textLacking         // a text that does not begin with a space
)

// before returns the space to put before a part of a text. at is the offset of the part in the
// text.
func (l leading) before(part string, at int) string {
	spaced := strings.HasPrefix(part, " ") || strings.HasPrefix(part, marked)
	if part != "" && (l == led || l == lacking && !spaced || l == textLacking && !spaced && at == 0) {
		return " "
	}
	return ""
}

// marked is sentencepiece's character for a space.
const marked = "▁"

// Spellings of the token that ends a text in the vocabularies of GPT-2, Llama 3, and LLaMA.
const (
	gpt2End  = "<|endoftext|>"
	llamaEnd = "<|end_of_text|>"
	pieceEnd = "</s>"
)

// Bytes returns the vocabulary of training on text that is not tokenized: every byte is a token,
// and 0 separates texts.
func Bytes() *Vocabulary {
	v := &Vocabulary{End: data.Separator, ids: make(map[string]int32), piece: piece, cut: cut}
	for b := range 256 {
		v.add(string([]byte{byte(b)}))
	}
	return v
}

// GPT2Vocabulary returns the vocabulary of GPT2, read from the library that encodes with it.
var GPT2Vocabulary = sync.OnceValue(func() *Vocabulary {
	library := codec.NewR50kBase()
	v := &Vocabulary{End: data.GPT2End, ids: make(map[string]int32), merges: make(map[[2]int32]merge), piece: piece, cut: cut}
	for id := range uint(data.GPT2End) {
		token, err := library.Decode([]uint{id})
		if err != nil {
			panic("tokenizer: the library lacks a token of GPT-2's")
		}
		v.add(token)
		if len(token) > 1 { // tokens are in the order of their merges
			pair := v.merged(v.spelt(token))
			v.merges[[2]int32{pair[0], pair[1]}] = merge{len(v.merges), int32(id)}
		}
	}
	v.add(gpt2End)
	v.search(addedToken{ID: data.GPT2End, Content: gpt2End, Special: true})
	return v
})

// add appends a token.
func (v *Vocabulary) add(token string) {
	v.ids[token] = int32(len(v.tokens))
	v.tokens = append(v.tokens, token)
}

// Begin returns the token at the begin of every text, -1 if there is none or more than one.
func (v *Vocabulary) Begin() int32 {
	if len(v.begin) == 1 {
		return v.begin[0]
	}
	return -1
}

// Size returns the number of tokens; ids are less than it.
func (v *Vocabulary) Size() int { return len(v.tokens) }

// Text returns the bytes of a token.
func (v *Vocabulary) Text(id int32) string { return v.tokens[id] }

// Opening returns the bytes of the first token of a text, without the leading space that the
// encoding has added.
func (v *Vocabulary) Opening(id int32) string {
	if v.strips {
		return strings.TrimPrefix(v.tokens[id], " ")
	}
	return v.tokens[id]
}

// Prompt returns the tokens of an unfinished text, after those at the begin of every text. The
// error names a byte without a token.
func (v *Vocabulary) Prompt(text string) ([]int32, error) {
	tokens := slices.Clone(v.begin)
	for _, p := range v.raw.apart(text, 0, false) {
		if p.token != nil {
			tokens = append(tokens, p.token.ID)
			continue
		}
		source := p.text
		if v.composes {
			p.text = nfc(p.text)
		}
		if v.escapes {
			p.text = strings.ReplaceAll(v.leads.before(p.text, p.at)+p.text, " ", marked)
		}
		for _, q := range v.normal.apart(p.text, p.at, false) {
			if q.token != nil {
				tokens = append(tokens, q.token.ID)
				continue
			}
			var err error
			tokens, err = v.encode(tokens, q)
			if failed, ok := errors.AsType[pieceError](err); ok {
				if v.composes {
					failed.position = p.at + beforeNFC(source, failed.position-p.at)
				}
				return nil, fmt.Errorf("byte %d, %w", failed.position, failed.error)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return tokens, nil
}

// encode appends the tokens of a part of a text. An error at a certain byte is a pieceError.
func (v *Vocabulary) encode(tokens []int32, p part) ([]int32, error) {
	text, at := p.text, p.at
	if !v.escapes {
		space := v.leads.before(text, at)
		text, at = space+text, at-len(space)
	}
	for len(text) > 0 {
		word := text[:v.piece(text)]
		ids, err := v.word(word)
		if failed, ok := errors.AsType[pieceError](err); ok {
			return nil, pieceError{failed.error, at + failed.position}
		}
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, ids...)
		text, at = text[len(word):], at+len(word)
	}
	return tokens, nil
}

// word returns the tokens of a piece. An error at a certain byte is a pieceError.
func (v *Vocabulary) word(word string) ([]int32, error) {
	if v.ask != nil {
		return v.ask(word)
	}
	if id, ok := v.ids[word]; ok && v.whole {
		return []int32{id}, nil
	}
	if v.bytes != nil {
		return v.merged(v.letters(word)), nil
	}
	ids := v.spelt(word)
	if i := slices.Index(ids, -1); i >= 0 {
		return nil, pieceError{fmt.Errorf("0x%02x: the vocabulary has no token for it", word[i]), i}
	}
	return v.merged(ids), nil
}

// spelt returns the token of each byte of text, -1 for a byte without a token.
func (v *Vocabulary) spelt(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range len(text) {
		id, ok := v.ids[text[i:i+1]]
		if !ok {
			id = -1
		}
		ids[i] = id
	}
	return ids
}

// letters returns the token of each character of text, or the tokens of its bytes.
func (v *Vocabulary) letters(text string) []int32 {
	ids := make([]int32, 0, len(text))
	for at := 0; at < len(text); {
		_, n := utf8.DecodeRuneInString(text[at:])
		letter := text[at : at+n]
		at += n
		if letter == " " {
			letter = marked
		}
		if id, ok := v.ids[letter]; ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(letter) {
			ids = append(ids, v.bytes[b])
		}
	}
	return ids
}

// Tokenizer returns the encoding for documents. In a document the spelling of a special token is
// plain text, and that of any other added token is this token. The error says what the encoding lacks.
func (v *Vocabulary) Tokenizer() (Tokenizer, error) {
	if v.End < 0 {
		return Tokenizer{}, errors.New("no token that ends texts: want eos_token in tokenizer_config.json")
	}
	t := Tokenizer{Vocab: v.Size(), begin: v.begin, endOfText: v.End, composes: v.composes, leads: v.leads, cut: v.cut}
	t.encoder = func() *encoder { return &encoder{piece: v.piece, ask: v.word, known: make(map[string][]int32)} }
	hasPlain := false
	for _, id := range slices.Sorted(maps.Keys(v.added)) {
		a := v.added[id]
		hasPlain = hasPlain || !a.Special
		if !a.Special && (v.bytes != nil || v.ask != nil) {
			return Tokenizer{}, fmt.Errorf("added_tokens: %.100q is not special: documents that hold such tokens are only supported with byte-level tokenizers", a.Content)
		}
	}
	if !hasPlain {
		return t, nil
	}
	for _, id := range slices.Sorted(maps.Keys(v.added)) {
		a := v.added[id]
		if a.Normalized && v.composes && strings.ContainsAny(strings.TrimLeft(a.Content, " \n\t"), " \n\t") {
			return Tokenizer{}, fmt.Errorf("added_tokens: %.100q is normalized and has a space behind another character: not supported with NFC", a.Content)
		}
	}
	t.raw, t.normal, t.cut = v.raw, v.normal, v.cutOutside
	return t, nil
}

// cutOutside is cut for a text with added tokens. No place is inside of such a token.
func (v *Vocabulary) cutOutside(text []byte, from int) int {
	for end := len(text); ; {
		end = v.cut(text[:end], from)
		if end == 0 || !v.raw.crosses(text, end) && !v.normal.crosses(text, end) {
			return end
		}
	}
}

// VocabularyOf returns the vocabulary of a model with vocab tokens that was trained on data.path.
// For a token file only the ids are known. A vocabulary of GPT-2's size, padded to a multiple of at
// most 1024, counts as GPT-2's. The error says that the vocabulary is not known.
func VocabularyOf(path string, vocab int) (*Vocabulary, error) {
	if !data.IsTokens(path) {
		return Bytes(), nil
	}
	if IsGPT2(vocab) {
		return GPT2Vocabulary(), nil
	}
	return nil, fmt.Errorf("a token file does not say which tokenizer made it, and a vocabulary of %d is not GPT-2's", vocab)
}

// IsGPT2 reports whether vocab is the size of GPT-2's vocabulary, or of that padded.
func IsGPT2(vocab int) bool { return vocab >= data.GPT2Tokens && vocab < data.GPT2Tokens+1024 }
