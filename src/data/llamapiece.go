package data

import (
	"strings"
	"unicode/utf8"
)

// llamaDigits is the largest number of digits in a piece.
const llamaDigits = 3

// llamaPiece returns the length in bytes of the first match of Llama 3's regular
// expression, llamaPattern, in a text that is not empty.
func llamaPiece(text string) int {
	if n := foldedContraction(text); n > 0 {
		return n
	}
	k, n := first(text)
	next, _ := first(text[n:])
	newline := text[0] == '\r' || text[0] == '\n'
	switch {
	case k == letter, k != number && !newline && next == letter && n < len(text):
		return n + run(text[n:], letter)
	case k == number:
		end := n
		for range llamaDigits - 1 {
			if k, n := first(text[end:]); n > 0 && k == number {
				end += n
			}
		}
		return end
	case k == mark, text[0] == ' ' && next == mark && n < len(text):
		end := n + run(text[n:], mark)
		return end + len(text[end:]) - len(strings.TrimLeft(text[end:], "\r\n"))
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

// llamaCut is cut for an expression in which a mark takes the line ends after it.
func llamaCut(text []byte, from int) int {
	for {
		at := cut(text, from)
		if at == 0 || text[at] != '\n' {
			return at
		}
		if r, _ := utf8.DecodeLastRune(text[:at]); kindOf(r) != mark {
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
