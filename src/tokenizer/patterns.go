package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The regular expressions that cut texts into pieces, as written in tokenizer.json. cl100k's is
// Llama 3's.
const (
	gpt2Pattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llamaPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenPattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// pattern is the functions that take the place of a regular expression.
type pattern struct {
	piece func(text string) int           // the length in bytes of the first match in a text that is not empty
	cut   func(text []byte, from int) int // see Tokenizer
}

// patterns are the known regular expressions. Classes of characters are those of Go's Unicode
// version: 15.0, and 17.0 from Go 1.27 on.
var patterns = map[string]pattern{
	gpt2Pattern:  {piece, cut},
	llamaPattern: {func(text string) int { return foldedPiece(text, 3) }, lineCut},
	qwenPattern:  {func(text string) int { return foldedPiece(text, 1) }, lineCut},
	o200kPattern: {o200kPiece, lineCut},
}

// foldedPiece returns the length in bytes of the first match of llamaPattern in a text that is not
// empty. It returns that of qwenPattern if digits is 1.
func foldedPiece(text string, digits int) int {
	if n := foldedContraction(text); n > 0 {
		return n
	}
	start := optional(text)
	if n := run(text[start:], letter); n > 0 {
		return start + n
	}
	return otherPiece(text, digits, "\r\n")
}

// o200kPiece returns the length in bytes of the first match of o200kPattern in a text that is not
// empty.
func o200kPiece(text string) int {
	start := optional(text)
	n := casedWord(text[start:])
	if n <= 0 && start > 0 {
		if whole := casedWord(text); whole > 0 { // the optional character is a combining mark
			start, n = 0, whole
		}
	}
	if n == 0 {
		return otherPiece(text, 3, "\r\n/")
	}
	end := start + max(n, -n)
	if end < len(text) {
		end += foldedContraction(text[end:])
	}
	return end
}

// casedWord returns the length in bytes of the word at the begin of a text. A word is capitals, then
// small letters. Marks and letters without case count as both. The length is negative if the word
// has capitals only.
func casedWord(text string) int {
	end, small := 0, 0 // small is the end of the last character that can be a small letter
	isLower := false
	for end < len(text) {
		r, n := utf8.DecodeRuneInString(text[end:])
		isSmall := unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M)
		if !isSmall && (isLower || !unicode.In(r, unicode.Lu, unicode.Lt)) {
			break
		}
		end += n
		if isSmall {
			small = end
		}
		isLower = isLower || unicode.Is(unicode.Ll, r)
	}
	if small > 0 {
		return small
	}
	return -end
}

// optional returns the length in bytes of [^\r\n\p{L}\p{N}]? at the begin of text.
func optional(text string) int {
	if k, n := first(text); k != letter && k != number && text[0] != '\r' && text[0] != '\n' {
		return n
	}
	return 0
}

// otherPiece is the length in bytes of a piece that is no word. A piece has at most so many digits.
// The characters of after may follow marks.
func otherPiece(text string, digits int, after string) int {
	k, n := first(text)
	next, _ := first(text[n:])
	switch {
	case k == number:
		end := n
		for range digits - 1 {
			if k, n := first(text[end:]); n > 0 && k == number {
				end += n
			}
		}
		return end
	case k == mark, text[0] == ' ' && next == mark && n < len(text):
		end := n + run(text[n:], mark)
		return end + len(text[end:]) - len(strings.TrimLeft(text[end:], after))
	}
	end := run(text, space)
	if last := strings.LastIndexAny(text[:end], "\r\n"); last >= 0 {
		return last + 1
	}
	if _, size := utf8.DecodeLastRuneInString(text[:end]); end < len(text) && size < end {
		return end - size // the last of several spaces belongs to the next piece
	}
	return end
}

// lineCut is cut for an expression in which a mark takes the line ends after it. A letter may become
// a letter and a mark in NFC.
func lineCut(text []byte, from int) int {
	for {
		at := cut(text, from)
		if at == 0 || text[at] != '\n' {
			return at
		}
		_, size := utf8.DecodeLastRune(text[:at])
		if r, _ := utf8.DecodeLastRune(norm.NFC.Bytes(text[at-size : at])); kindOf(r) != mark {
			return at
		}
		text = text[:at]
	}
}

// run returns the number of bytes of the characters of one kind at the begin of text.
func run(text string, of kind) int {
	end := 0
	for k, n := first(text); n > 0 && k == of; k, n = first(text[end:]) {
		end += n
	}
	return end
}

// foldedContraction is contraction for upper and lower case.
func foldedContraction(text string) int {
	if text[0] != '\'' {
		return 0
	}
	for _, letters := range []string{"s", "t", "re", "ve", "m", "ll", "d"} {
		end := 1
		for range letters {
			_, n := utf8.DecodeRuneInString(text[end:])
			end += n
		}
		if strings.EqualFold(text[1:end], letters) {
			return end
		}
	}
	return 0
}
