package tokenizer

import (
	"fmt"
	"strings"
)

// parseMerges reads merges.txt: a line with the version, then a line for each merge, in order.
func (v *Vocabulary) parseMerges(ids map[string]int32, text string) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#version") {
			continue
		}
		if err := v.addMerge(ids, number, strings.Split(line, " ")); err != nil {
			return fmt.Errorf("line %d: %.100q: %w", number, line, err)
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
