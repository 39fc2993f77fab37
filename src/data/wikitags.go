package data

import (
	"html"
	"strings"
)

var (
	// unseen are the tags whose content is not visible text.
	unseen = setOf("ref", "references", "math", "chem", "ce", "gallery", "imagemap", "timeline", "score",
		"hiero", "graph", "mapframe", "maplink", "templatestyles", "includeonly", "style", "script")
	// asItStands are the tags whose content is plain text without markup.
	asItStands = setOf("nowiki", "pre", "syntaxhighlight", "source")
	// lineEnds are the tags that begin a new line.
	lineEnds = setOf("br", "hr", "p", "div", "li", "tr", "blockquote")
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range names {
		set[name] = true
	}
	return set
}

// tag handles an HTML tag, with its content if that is not visible or has no markup. It reports
// whether a tag begins here.
func (s *stripper) tag(rest string) bool {
	end := 1 + strings.IndexAny(rest[1:], "<>")
	if end == 0 || rest[end] == '<' {
		return false
	}
	inside := rest[1:end]
	closing := strings.HasPrefix(inside, "/")
	name := strings.ToLower(tagName(strings.TrimPrefix(inside, "/")))
	if name == "" {
		return false
	}
	s.position += end + 1
	if lineEnds[name] {
		s.out = append(s.out, '\n')
	}
	if closing || strings.HasSuffix(inside, "/") || !unseen[name] && !asItStands[name] {
		return true
	}
	content, found := s.until(name)
	if found && asItStands[name] {
		s.out = append(s.out, html.UnescapeString(content)...)
	}
	return true
}

// tagName returns the name at the begin of a tag: letters and digits, followed by a space, a slash,
// > or the end.
func tagName(text string) string {
	n := 0
	for n < len(text) && (isLetter(text[n]) || n > 0 && isDigit(text[n])) {
		n++
	}
	if n < len(text) && strings.IndexByte(" \t\n/>", text[n]) < 0 {
		return ""
	}
	return text[:n]
}

// until takes the text up to the closing tag, and the closing tag.
func (s *stripper) until(name string) (content string, found bool) {
	if s.endless[name] {
		return "", false
	}
	rest := s.in[s.position:]
	for position := 0; ; position += len("</") {
		n := strings.Index(rest[position:], "</")
		if n < 0 {
			s.endless[name] = true
			return "", false
		}
		position += n
		if !strings.EqualFold(tagName(rest[position+len("</"):]), name) {
			continue
		}
		_, after, _ := strings.Cut(rest[position:], ">")
		s.position = len(s.in) - len(after)
		return rest[:position], true
	}
}

// entity handles &name; or &#number;, or an ampersand.
func (s *stripper) entity(rest string) {
	n := 1
	for n < len(rest) && (isLetter(rest[n]) || isDigit(rest[n]) || rest[n] == '#') {
		n++
	}
	if n < len(rest) && rest[n] == ';' {
		// If the result ends in a semicolon, this is no entity, or it begins with one that HTML
		// accepts without a semicolon.
		if character := html.UnescapeString(rest[:n+1]); len(character) == 1 || !strings.HasSuffix(character, ";") {
			s.text([]byte(character))
			s.position += n + 1
			return
		}
	}
	s.text([]byte("&"))
	s.position++
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
