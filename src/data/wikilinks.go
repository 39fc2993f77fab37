package data

import (
	"bytes"
	"regexp"
	"strings"
)

// bracket is a kind of markup that opens and closes, the strongest first. A bracket that closes
// also closes weaker brackets inside it. It never closes across a stronger open bracket.
type bracket uint8

const (
	template bracket = iota // or a parameter of one
	table
	link
	external
)

// deepest bounds the number of open brackets; a run of braces counts as one. Text inside brackets
// is moved at most that often. Signs beyond the bound are text.
const deepest = 100

// opening is a bracket that is still open.
type opening struct {
	bracket
	position int // place of its sign in the output
	length   int // length of its sign: a run of braces may open several templates
}

// begin opens a bracket. Its sign counts as text until the bracket closes.
func (s *stripper) begin(b bracket, sign string) {
	if len(s.open) < deepest {
		s.open = append(s.open, opening{b, len(s.out), len(sign)})
	}
	s.out = append(s.out, sign...)
	s.position += len(sign)
}

// end closes a bracket and reports whether one was open. Of a run of open braces it closes as many
// as the sign has, from the last on. The remaining braces stay open if there are at least two.
func (s *stripper) end(b bracket, sign string) bool {
	i := len(s.open) - 1
	for i >= 0 && s.open[i].bracket > b {
		i--
	}
	if i < 0 || s.open[i].bracket != b {
		return false
	}
	o := &s.open[i]
	n := min(o.length, len(sign))
	o.length -= n
	from := o.position + o.length
	if o.length >= len("{{") {
		i++
	}
	s.open = s.open[:i]
	s.position += n
	inside := s.out[from+n:] // the remaining text moves towards the front
	s.out = s.out[:from]
	switch b {
	case link:
		s.text(s.label(inside))
	case external:
		_, label, _ := bytes.Cut(inside, []byte(" "))
		s.text(label)
	}
	return true
}

// endLine drops the brackets of external links that are still open at the end of the line.
func (s *stripper) endLine() {
	for n := len(s.open); n > 0 && s.open[n-1].bracket == external; n-- {
		s.open = s.open[:n-1]
	}
}

// language matches a prefix that names a wiki in another language: fr, roa-rup,
// zh-min-nan.
var language = regexp.MustCompile(`^[a-z]{2,3}(-[a-z]+)*$`)

// label returns the visible text of a link.
func (s *stripper) label(inside []byte) []byte {
	target, label, _ := bytes.Cut(inside, []byte("|"))
	target = bytes.TrimSpace(target)
	space, _, found := bytes.Cut(target, []byte(":"))
	space = bytes.TrimSpace(space)
	switch {
	case found && s.hidden[strings.ToLower(string(space))]:
		return nil
	case len(bytes.TrimSpace(label)) > 0:
		return label
	case found && language.Match(space):
		return nil
	}
	return bytes.TrimPrefix(target, []byte(":"))
}

// isAddress reports whether text begins with the scheme of an external link.
func isAddress(text string) bool {
	for _, scheme := range []string{"http://", "https://", "//", "ftp://", "mailto:"} {
		if strings.HasPrefix(text, scheme) {
			return true
		}
	}
	return false
}
