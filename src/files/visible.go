package files

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Visible returns text with every character that does not print replaced by its Go escape. These
// are control characters, which a terminal obeys, marks that reverse the direction of writing, and
// bytes that are not UTF-8. Line ends are also replaced.
func Visible(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case hidden(r):
			escape := strconv.QuoteRune(r)
			b.WriteString(escape[1 : len(escape)-1])
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

func hidden(r rune) bool { return !strconv.IsPrint(r) }

// VisibleLines applies Visible to every line of a text and keeps the line ends.
func VisibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Visible(line)
	}
	return strings.Join(lines, "\n")
}
