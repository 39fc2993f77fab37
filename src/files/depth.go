package files

import (
	"bytes"
	"fmt"
)

// deepest bounds the nesting of tables and lists in a TOML text. A file of settings has a depth of
// three. The library takes time and memory proportional to the square of the depth.
const deepest = 16

// CheckDepth returns an error if brackets or dotted keys of a TOML text are nested deeper than
// settings ever are. It checks nothing else. name is the name of the text in errors.
func CheckDepth(name string, text []byte) error {
	line, open, dots := 1, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			line++
			dots = 0
		case '#':
			i += lineEnd(text[i:]) - 1
		case '"', '\'':
			n := quoted(text[i:])
			line += bytes.Count(text[i:i+n], []byte("\n"))
			i += n - 1
		case '[', '{':
			open++
			dots = 0
		case ']', '}':
			open = max(0, open-1)
			dots = 0
		case '.':
			dots++
		case '=', ',':
			dots = 0
		}
		if open+dots > deepest {
			return fmt.Errorf("%s:%d: tables or lists more than %d deep in each other, want settings", name, line, deepest)
		}
	}
	return nil
}

// lineEnd returns the number of bytes before the end of the first line of text.
func lineEnd(text []byte) int {
	if n := bytes.IndexByte(text, '\n'); n >= 0 {
		return n
	}
	return len(text)
}

// quoted returns the length of the TOML string at the begin of text. If the string does not end,
// the length is that of its line, or of the whole text if the string may span lines.
func quoted(text []byte) int {
	quote := text[0]
	if long := bytes.Repeat(text[:1], 3); bytes.HasPrefix(text, long) {
		for i := 3; i+3 <= len(text); i++ {
			if quote == '"' && text[i] == '\\' {
				i++
			} else if bytes.HasPrefix(text[i:], long) {
				after := text[i+3:]
				more := len(after) - len(bytes.TrimLeft(after, string(quote))) // up to two quotes belong to the string
				return i + 3 + min(2, more)
			}
		}
		return len(text)
	}
	end := lineEnd(text)
	for i := 1; i < end; i++ {
		switch {
		case quote == '"' && text[i] == '\\':
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return end
}
