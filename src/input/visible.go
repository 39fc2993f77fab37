package input

import (
	"bytes"
	"encoding/json"
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

// Lines reads a file of at most limit bytes with one JSON value for each line. A torn last line is
// left out, and the note says so (see Whole). Any other wrong line is an error with its number.
func Lines[T any](path string, limit int64) (list []T, note string, err error) {
	text, err := Read(path, limit)
	if err != nil {
		return nil, "", err
	}
	text, note = Whole(path, text)
	for line := range bytes.Lines(text) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, "", fmt.Errorf("%s:%d: %w", path, len(list)+1, Mistyped(err))
		}
		list = append(list, v)
	}
	return list, note, nil
}

// Whole removes a torn last line from a text with one JSON value for each line; the values may be
// in an array. A line is torn if it is not JSON: a killed run or a full disk tears it, and a crash
// of the machine may leave NULs. The note reports the removal. A text whose first line is no
// complete value, as in a file written by hand, is returned unchanged.
func Whole(name string, text []byte) (whole []byte, note string) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	begin := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1 // of the last line
	if begin > 0 && !isLine(first) || isLine(text[begin:]) {
		return text, ""
	}
	return text[:begin], fmt.Sprintf("%s:%d: the last line is torn and left out", name, 1+bytes.Count(text[:begin], []byte("\n")))
}

// isLine reports whether a line is a JSON value, or a bracket of an array with one value for each
// line.
func isLine(line []byte) bool {
	line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
	return len(line) == 0 || string(line) == "[" || string(line) == "]" || json.Valid(line)
}
