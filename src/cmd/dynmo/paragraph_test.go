package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// narrow fails if a text has lines that are wider than an answer's may be.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > widest {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestParagraph: words keep their order, lines their width, and --set what it sets.
func TestParagraph(t *testing.T) {
	set := "--set model.head_shards=" + strings.Repeat("9", 20)
	text := strings.Repeat(set+" ", 9) + "µ"
	var out strings.Builder
	paragraph(&out, "or", "%s", text)
	narrow(t, out.String())
	if got := strings.Join(strings.Fields(out.String()), " "); got != "or "+text {
		t.Errorf("%q", got)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasSuffix(line, "--set\n") || line[beneath-1] != ' ' {
			t.Errorf("%q", line)
		}
	}
}
