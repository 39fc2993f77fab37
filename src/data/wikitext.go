package data

import "strings"

// strip returns the visible text of a page in MediaWiki's markup, by a few rules in one pass.
// Errors in the markup stay in the text, as on the page.
//
//   - Comments, templates {{…}}, parameters of templates {{{…}}} and tables
//     {|…|} vanish with all they hold, so the output of a template
//     and the default of a parameter are missing.
//   - [[target]], [[target|label]] and [https://… label] leave the label or the
//     target; [https://…] leaves nothing.
//   - Links in a namespace of hidden (files with their captions, categories)
//     vanish, unless a colon begins them. So do links without a label to the
//     page in another language, [[fr:Bonjour]].
//   - <ref>, <math> and their like (see unseen) vanish with their content;
//     <nowiki>, <pre> and code leave it as it stands; other tags vanish alone,
//     and those that end a line end it.
//   - Marks of headings, lists, bold and italics, rules of dashes and behaviour
//     switches such as __NOTOC__ (see switches) vanish.
//   - Entities become their characters.
//   - Of several spaces one stays, of several empty lines one, and none at
//     either end.
//
// Time and memory are linear in the length of the page, for any content.
func strip(page string, hidden map[string]bool) string {
	page = withoutComments(page)
	s := stripper{in: page, hidden: hidden, out: make([]byte, 0, len(page)), endless: make(map[string]bool)}
	for s.position < len(s.in) {
		if s.position == 0 || s.in[s.position-1] == '\n' {
			s.line()
		}
		if s.position < len(s.in) {
			s.step()
		}
	}
	return tidy(s.out)
}

// withoutComments removes <!-- … -->. An unclosed comment ends with the page.
func withoutComments(page string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(page, "<!--")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, page, _ = strings.Cut(rest, "-->")
	}
}

// stripper is the state of stripping a page.
type stripper struct {
	in       string
	position int // first byte of in that has not been handled
	out      []byte
	hidden   map[string]bool // namespaces, in lower case
	open     []opening
	title    int             // place of the marks that end this line's heading, or 0
	endless  map[string]bool // tags without a closing tag after position
}

// special are the bytes that may begin markup.
const special = "{}[]'<&_\n="

// step handles one piece of markup, or the text up to the next one.
func (s *stripper) step() {
	rest := s.in[s.position:]
	two := rest[:min(2, len(rest))]
	switch {
	case two == "{{":
		s.begin(template, rest[:len(rest)-len(strings.TrimLeft(rest, "{"))])
	case strings.HasPrefix(rest, "}}}") && s.end(template, "}}}"):
	case two == "}}" && s.end(template, two):
	case two == "[[":
		s.begin(link, two)
	case two == "]]" && s.end(link, two):
	case rest[0] == '[' && isAddress(rest[1:]):
		s.begin(external, "[")
	case rest[0] == ']' && s.end(external, "]"):
	case two == "''":
		s.quotes(rest)
	case rest[0] == '<' && s.tag(rest):
	case rest[0] == '&':
		s.entity(rest)
	case two == "__" && s.behaviour(rest):
	case rest[0] == '\n':
		s.endLine()
		s.out = append(s.out, '\n')
		s.position++
	case rest[0] == '=' && s.title > 0 && s.position == s.title:
		s.position += len(rest) - len(strings.TrimLeft(rest, "="))
		s.title = 0
	default:
		n := 1 + strings.IndexAny(rest[1:], special)
		if n == 0 {
			n = len(rest)
		}
		s.text([]byte(rest[:n]))
		s.position += n
	}
}

// text writes plain text, without spaces after a space or at the begin of a line.
func (s *stripper) text(text []byte) {
	for _, c := range text {
		if c == '\t' {
			c = ' '
		}
		if n := len(s.out); c == ' ' && (n == 0 || s.out[n-1] == ' ' || s.out[n-1] == '\n') {
			continue
		}
		s.out = append(s.out, c)
	}
}

// line handles the markup that is only valid at the begin of a line.
func (s *stripper) line() {
	s.title = 0
	rest := s.in[s.position:]
	body := strings.TrimLeft(rest, "*#:; \t")
	switch marks := len(rest) - len(body); {
	case strings.HasPrefix(body, "{|"):
		s.position += marks
		s.begin(table, "{|")
	case strings.HasPrefix(body, "|}") && s.end(table, "|}"):
		s.position += marks
	case strings.HasPrefix(rest, "----"):
		s.position += len(rest) - len(strings.TrimLeft(rest, "-"))
	case rest != "" && rest[0] == '=':
		s.heading(rest)
	default:
		s.position += marks
	}
}

// heading drops the marks that begin a heading, and records the place of the marks that end it.
func (s *stripper) heading(rest string) {
	line, _, _ := strings.Cut(rest, "\n")
	line = strings.TrimRight(line, " \t")
	begin := len(line) - len(strings.TrimLeft(line, "="))
	end := len(line) - len(strings.TrimRight(line, "="))
	if begin == len(line) || end == 0 {
		return // a line of marks, or text that begins with one
	}
	s.title = s.position + len(line) - end
	s.position += begin
}

// quotes handles a run of two or more apostrophes: bold, italics, or both, and further apostrophes.
func (s *stripper) quotes(rest string) {
	n := len(rest) - len(strings.TrimLeft(rest, "'"))
	s.position += n
	switch {
	case n == 4:
		s.text([]byte("'"))
	case n > 5:
		s.text([]byte(rest[:n-5]))
	}
}

// switches are the words that, between two underscores on either side, tell
// MediaWiki how to treat a page, in English: its own (MagicWordFactory.php,
// with the short forms in MessagesEn.php) and those of the extensions
// Disambiguator, DiscussionTools, GlobalUserPage and Wikibase.
var switches = setOf("TOC", "NOTOC", "FORCETOC", "NOEDITSECTION", "NEWSECTIONLINK", "NONEWSECTIONLINK", "NOGALLERY",
	"HIDDENCAT", "EXPECTSHORTPAGE", "EXPECTUNUSEDCATEGORY", "EXPECTUNUSEDTEMPLATE", "INDEX", "NOINDEX", "STATICREDIRECT",
	"NOTITLECONVERT", "NOTC", "NOCONTENTCONVERT", "NOCC",
	"DISAMBIG", "ARCHIVEDTALK", "NOTALK", "NOGLOBAL", "EXPECTED_UNCONNECTED_PAGE")

// behaviour drops a switch, __NOTOC__, and reports whether one begins here.
func (s *stripper) behaviour(rest string) bool {
	const longest = len("__EXPECTED_UNCONNECTED_PAGE__")
	word, _, closed := strings.Cut(rest[2:min(longest, len(rest))], "__")
	if !closed || !switches[word] {
		return false
	}
	s.position += 2 + len(word) + 2
	return true
}

// tidy removes spaces at the ends of lines, and reduces several empty lines to one.
func tidy(text []byte) string {
	var out strings.Builder
	out.Grow(len(text))
	empty := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "":
			empty++
			continue
		case out.Len() > 0 && empty > 0:
			out.WriteString("\n\n")
		case out.Len() > 0:
			out.WriteByte('\n')
		}
		empty = 0
		out.WriteString(line)
	}
	return out.String()
}
