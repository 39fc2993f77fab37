package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"dynmo/src/data"

	"github.com/tiktoken-go/tokenizer/codec"
)

// GPT2 returns GPT-2's byte-pair encoding. Pieces of text (words, numbers,
// marks, white space) are those of GPT-2's regular expression.
func GPT2() Tokenizer {
	return Tokenizer{Vocab: data.GPT2Tokens, endOfText: data.GPT2End, cut: cut, encoder: newBPE}
}

func newBPE() *encoder {
	library := codec.NewR50kBase()
	ask := func(word string) ([]int32, error) {
		var tokens []int32
		for i, part := range strings.Split(word, lost) {
			if i > 0 {
				tokens = append(tokens, lostID)
			}
			found, parts, err := library.Encode(part)
			if err != nil {
				return nil, fmt.Errorf("tokenizer: %.100q: %w", part, err)
			}
			if joined := strings.Join(parts, ""); joined != part {
				return nil, fmt.Errorf("tokenizer: %.100q encoded as %.100q", part, joined)
			}
			for _, id := range found {
				tokens = append(tokens, int32(id))
			}
		}
		return tokens, nil
	}
	return &encoder{piece: piece, ask: ask, known: make(map[string][]int32)}
}

// lost is a character that the library's regular expressions do not match, because the library
// replaces them by code. The library would drop the character. GPT-2 has one id for it, and no id for it together with a neighbour.
const (
	lost   = "\x7f"
	lostID = 221
)

// kind is the kind of a character in GPT-2's regular expression.
type kind uint8

const (
	mark   kind = iota // [^\s\p{L}\p{N}]
	letter             // \p{L}
	number             // \p{N}
	space              // \s
)

// ascii has the kinds of the ASCII characters.
var ascii = func() (kinds [utf8.RuneSelf]kind) {
	for c := range kinds {
		kinds[c] = kindOf(rune(c))
	}
	return kinds
}()

func kindOf(r rune) kind {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return mark
}

// first returns the kind of the first character of text and its length in bytes. The length is 0
// for an empty text.
func first(text string) (kind, int) {
	if len(text) == 0 {
		return mark, 0
	}
	if c := text[0]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(text)
	return kindOf(r), n
}

// piece returns the length in bytes of the first match of GPT-2's regular
// expression (openai/gpt-2, encoder.py) in a text that is not empty:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func piece(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	end := 0
	if text[0] == ' ' {
		if k, n := first(text[1:]); n > 0 && k != space {
			end = 1
		}
	}
	k, n := first(text[end:])
	last := 0 // length of the last character in the run
	for same := k; n > 0 && same == k; same, n = first(text[end:]) {
		end += n
		last = n
	}
	if k == space && n > 0 && last < end {
		return end - last // the last of several spaces belongs to the next piece
	}
	return end
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the begin of text, else 0.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch text[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(text) > 2 {
		switch text[1:3] {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// cut returns the last place in text, at from or later, where a division changes no id: encoding
// both parts gives the same ids. It returns 0 if there is none. The place is before white space
// that follows another character, because no piece has the two in this order.
func cut(text []byte, from int) int {
	for i := len(text) - 1; i >= max(from, 1); i-- {
		if text[i] != ' ' && text[i] != '\n' && text[i] != '\t' {
			continue
		}
		if r, _ := utf8.DecodeLastRune(text[:i]); r != utf8.RuneError && kindOf(r) != space {
			return i
		}
	}
	return 0
}
