package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Vocabulary is a byte-level byte-pair encoding (Radford et al. 2019): it turns any
// text into tokens, and tokens back into bytes.
type Vocabulary struct {
	End    int32 // the token that ends a text; -1 if there is none
	tokens []string
	ids    map[string]int32
	merges map[[2]int32]merge
	piece  func(text string) int // length in bytes of the first piece of a text, which is not empty
	whole  bool                  // a piece that is a token is that one, whatever its merges
	begin  []int32               // stand before every text
	added  map[string]int32      // tokens that a text holds as they are
	sets   [][]string            // of these: a text is searched for all of one, then its rest for the next
}

// merge is what two neighbours become, and when: of those in a text the merge of
// the lowest rank is made first.
type merge struct {
	rank int
	id   int32
}

// Spellings of the token that ends a text in the vocabularies of GPT-2 and Llama 3.
const (
	gpt2End  = "<|endoftext|>"
	llamaEnd = "<|end_of_text|>"
)

// Bytes returns the vocabulary that text is trained with where it is not
// tokenized: every byte is a token, and 0 stands between two texts.
func Bytes() *Vocabulary {
	v := &Vocabulary{End: separator, ids: make(map[string]int32), piece: piece}
	for b := range 256 {
		v.add(string([]byte{byte(b)}))
	}
	return v
}

// GPT2Vocabulary returns the vocabulary of GPT2, from the library that encodes with it.
var GPT2Vocabulary = sync.OnceValue(func() *Vocabulary {
	library := codec.NewR50kBase()
	v := &Vocabulary{End: endOfText, ids: make(map[string]int32), merges: make(map[[2]int32]merge), piece: piece}
	for id := range uint(endOfText) {
		token, err := library.Decode([]uint{id})
		if err != nil {
			panic("data: the library lacks a token of GPT-2's")
		}
		v.add(token)
		if len(token) > 1 { // tokens stand in the order of their merges
			pair := v.merged(v.bytes(token))
			v.merges[[2]int32{pair[0], pair[1]}] = merge{len(v.merges), int32(id)}
		}
	}
	v.add(gpt2End)
	v.special(gpt2End, endOfText)
	return v
})

// special makes a token one that a text holds as it is.
func (v *Vocabulary) special(token string, id int32) {
	v.added, v.sets = map[string]int32{token: id}, [][]string{{token}}
}

// add appends a token.
func (v *Vocabulary) add(token string) {
	v.ids[token] = int32(len(v.tokens))
	v.tokens = append(v.tokens, token)
}

// Size returns how many tokens there are; ids are below it.
func (v *Vocabulary) Size() int { return len(v.tokens) }

// Text returns the bytes of a token.
func (v *Vocabulary) Text(id int32) string { return v.tokens[id] }

// Encode returns the tokens of a text. The error names a byte that no token is for.
func (v *Vocabulary) Encode(text string) ([]int32, error) {
	return v.encode(slices.Clone(v.begin), text, 0, v.sets)
}

// encode appends the tokens of a part of a text, which begins at a byte of it and has no
// added tokens but those of sets.
func (v *Vocabulary) encode(tokens []int32, part string, at int, sets [][]string) (_ []int32, err error) {
	for len(sets) > 0 {
		i, found := firstOf(part, sets[0])
		if i < 0 {
			sets = sets[1:]
			continue
		}
		if tokens, err = v.encode(tokens, part[:i], at, sets[1:]); err != nil {
			return nil, err
		}
		tokens = append(tokens, v.added[found])
		part, at = part[i+len(found):], at+i+len(found)
	}
	for len(part) > 0 {
		word := part[:v.piece(part)]
		ids := v.bytes(word)
		id, ok := v.ids[word]
		switch i := slices.Index(ids, -1); {
		case v.whole && ok:
			tokens = append(tokens, id)
		case i >= 0:
			return nil, fmt.Errorf("byte %d, 0x%02x: the vocabulary has no token for it", at+i, part[i])
		default:
			tokens = append(tokens, v.merged(ids)...)
		}
		part, at = part[len(word):], at+len(word)
	}
	return tokens, nil
}

// firstOf returns where the first of some words begins in text, -1 if there is none. Of
// those that begin there it is the longest.
func firstOf(text string, words []string) (at int, found string) {
	at = -1
	for _, word := range words {
		i := strings.Index(text, word)
		if i >= 0 && (at < 0 || i < at || i == at && len(word) > len(found)) {
			at, found = i, word
		}
	}
	return at, found
}

// bytes returns the token of each byte of text, -1 where there is none.
func (v *Vocabulary) bytes(text string) []int32 {
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

// merged makes all merges of neighbours, in its place.
func (v *Vocabulary) merged(ids []int32) []int32 {
	for len(ids) > 1 {
		best, pair := merge{rank: -1}, [2]int32{}
		for i := range len(ids) - 1 {
			if m, ok := v.merges[[2]int32{ids[i], ids[i+1]}]; ok && (best.rank < 0 || m.rank < best.rank) {
				best, pair = m, [2]int32{ids[i], ids[i+1]}
			}
		}
		if best.rank < 0 {
			break
		}
		n := 0
		for i := 0; i < len(ids); i++ {
			id := ids[i]
			if i+1 < len(ids) && id == pair[0] && ids[i+1] == pair[1] {
				id = best.id
				i++
			}
			ids[n] = id
			n++
		}
		ids = ids[:n]
	}
	return ids
}

// VocabularyOf returns the vocabulary that a model of so many tokens, trained on
// data.path, has learnt. Nothing is known of a token file but the ids in it: those of
// GPT-2's vocabulary, padded to a multiple of at most 1024, are taken for that. The error
// says that it is not known.
func VocabularyOf(path string, vocab int) (*Vocabulary, error) {
	if !IsTokens(path) {
		return Bytes(), nil
	}
	if IsGPT2(vocab) {
		return GPT2Vocabulary(), nil
	}
	return nil, fmt.Errorf("a token file does not say which tokenizer made it, and a vocabulary of %d is not GPT-2's", vocab)
}

// IsTokens reports whether Open takes a path for a token file's. Of one that is no
// longer there its name decides.
func IsTokens(path string) bool {
	if !isTokenFile(path) {
		return false
	}
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() && !isText(path)
}

// IsGPT2 reports whether so many tokens are GPT-2's vocabulary, or that padded.
func IsGPT2(vocab int) bool { return vocab >= gpt2Vocab && vocab < gpt2Vocab+1024 }
