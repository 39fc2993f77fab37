package data

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Files of a byte-level encoding, as GPT-2's.
const (
	vocabFile  = "vocab.json"
	mergesFile = "merges.txt"
)

// parseVocabulary reads vocab.json: an object with the id of every token, whose bytes are spelt as
// letters. Ids must be less than the number of tokens.
func parseVocabulary(text []byte) (*Vocabulary, error) {
	var ids map[string]int32
	if err := json.Unmarshal(text, &ids); err != nil {
		return nil, err
	}
	v := &Vocabulary{End: -1, ids: make(map[string]int32), tokens: make([]string, len(ids)), merges: make(map[[2]int32]merge), piece: piece, cut: cut}
	seen := make([]bool, len(ids))
	for _, spelt := range slices.Sorted(maps.Keys(ids)) {
		id := ids[spelt]
		token, _ := unspell(spelt)
		if id < 0 || int(id) >= len(ids) || seen[id] {
			return nil, fmt.Errorf("token %.100q has id %d, want each of 0 to %d once", spelt, id, len(ids)-1)
		}
		seen[id] = true
		v.tokens[id], v.ids[token] = token, id
	}
	if id, ok := ids[gpt2End]; ok {
		v.End = id
		v.special(gpt2End, id)
	}
	return v, nil
}

// parseMerges reads merges.txt: a line with the version, then a line for each merge, in order.
func (v *Vocabulary) parseMerges(text string) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || number == 1 && strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		left, _ = unspell(left)
		right, _ = unspell(right)
		a, hasLeft := v.ids[left]
		b, hasRight := v.ids[right]
		id, has := v.ids[left+right]
		if !ok || !hasLeft || !hasRight || !has {
			return fmt.Errorf("line %d: %.100q: want two tokens of %s that make a third", number, line, vocabFile)
		}
		if _, twice := v.merges[[2]int32{a, b}]; !twice {
			v.merges[[2]int32{a, b}] = merge{number, id}
		}
	}
	return nil
}

// spelling maps every byte to a printable letter (openai/gpt-2, encoder.py, bytes_to_unicode). A
// byte that prints in Latin-1 and is no space maps to itself, any other byte to the next letter
// from U+0100 on. ofLetter is the inverse.
var spelling, ofLetter = func() (spelling [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte)
	next := rune(256)
	for b := range spelling {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ') {
			r, next = next, next+1
		}
		spelling[b], bytes[r] = r, byte(b)
	}
	return spelling, bytes
}()

// spell returns the letters of a token's bytes.
func spell(token string) string {
	var b strings.Builder
	for i := range len(token) {
		b.WriteRune(spelling[token[i]])
	}
	return b.String()
}

// unspell returns the bytes that letters spell. A token with any other character spells no bytes
// and is returned unchanged: it was added to the vocabulary as text.
func unspell(spelt string) (token string, spells bool) {
	bytes := make([]byte, 0, len(spelt))
	for _, r := range spelt {
		b, ok := ofLetter[r]
		if !ok {
			return spelt, false
		}
		bytes = append(bytes, b)
	}
	return string(bytes), true
}
