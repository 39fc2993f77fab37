package data

import (
	"bytes"
	"regexp"
	"strings"
)

// bracket is a kind of markup that opens and closes, the strongest first: a
// bracket that closes takes weaker ones with it that are open within, and
// never reaches beyond a stronger one.
type bracket uint8

const (
	template bracket = iota // or a parameter of one
	table
	link
	external
)

// deepest bounds how many brackets are open at once, a run of braces being one,
// so that text within moves no more often than that; signs beyond it are
// text.
const deepest = 100

// opening is a bracket that is not closed yet.
type opening struct {
	bracket
	position int // where its sign stands in the output
	length   int // of its sign: a run of braces may open several templates
}

// begin opens a bracket. Its sign is text until it is closed.
func (s *stripper) begin(b bracket, sign string) {
	if len(s.open) < deepest {
		s.open = append(s.open, opening{b, len(s.out), len(sign)})
	}
	s.out = append(s.out, sign...)
	s.position += len(sign)
}

// end closes a bracket and reports whether one was open. Of a run of open braces it closes the
// number of the sign, the last first. The remaining braces stay open if they are two or more.
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
	inside := s.out[from+n:] // the text that stays moves towards the front
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

// endLine forgets addresses that the line does not close.
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

// isAddress reports whether text begins as the address of an external link.
func isAddress(text string) bool {
	for _, scheme := range []string{"http://", "https://", "//", "ftp://", "mailto:"} {
		if strings.HasPrefix(text, scheme) {
			return true
		}
	}
	return false
}
