package src_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// riddles are phrases that make a reader look back for the noun.
var riddles = regexp.MustCompile(`(?i)\b(of which|than which|that which|so many|as many as there are|what (it|they)|told of|is to be|are to be|but for|such that are|the one of the next)\b`)

// mostWords is the length of the longest sentence that a reader takes in at once.
const mostWords = 25

// TestProse counts, in the comments and in the texts for users of every package, riddles and
// sentences of more than 25 words. In C, CUDA and scripts it counts them in comments alone.
// testdata/prose.txt has the counts above 0: a count may fall, never rise. The aim is one in
// 300 lines of comments.
func TestProse(t *testing.T) {
	const file = "testdata/prose.txt"
	found, lines, all := map[string]int{}, 0, 0
	for name, text := range newTracked(t).files {
		var said []string
		n := 0
		if style := comments[path.Ext(name)]; style != nil {
			said, n = commentsOf(string(text), style)
		} else if path.Ext(name) == ".go" {
			said, n = prose(t, name, text)
		}
		lines += n
		for _, s := range said {
			hits := faults(s)
			found[path.Dir(name)] += len(hits)
			for _, hit := range hits {
				t.Logf("%s: %s", name, hit)
			}
			all += len(hits)
		}
	}
	t.Logf("%d in %d lines of comments: one in %d", all, lines, lines/max(1, all))
	if flag.Lookup("update").Value.String() == "true" { // see expect.Golden
		var b strings.Builder
		for _, dir := range slices.Sorted(maps.Keys(found)) {
			if found[dir] > 0 {
				fmt.Fprintf(&b, "%s %d\n", dir, found[dir])
			}
		}
		expect.OK(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	text, err := os.ReadFile(file)
	expect.OK(t, err)
	for dir, n := range found {
		if most := counted(string(text), dir); n > most {
			t.Errorf("%s has %d phrases that a reader stumbles over, want at most %d: go test -v -run Prose ./src | grep %s", dir, n, most, dir)
		}
	}
}

// counted returns the number behind a name in lines of names and numbers; 0 where it is not there.
func counted(lines, name string) int {
	for line := range strings.Lines(lines) {
		if rest, is := strings.CutPrefix(line, name+" "); is {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}

// comments match a comment of a language, by the extension of its files.
var comments = map[string]*regexp.Regexp{".c": inC, ".h": inC, ".cu": inC, ".cuh": inC, ".cpp": inC, ".sh": inShell, ".sbatch": inShell}

var (
	inC     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	inShell = regexp.MustCompile(`(?m)(^[ \t]*#( .*)?\n)+`)
	marks   = regexp.MustCompile(`(?m)^[ \t]*(/\*|\*|#) ?|\*/`)
	tables  = regexp.MustCompile(`(?m)^(\t|  ).*$`) // formulas and usage texts too: lines with an indent
)

// commentsOf returns the paragraphs and the lines of the comments that match a style.
func commentsOf(text string, style *regexp.Regexp) (said []string, lines int) {
	for _, c := range style.FindAllString(text, -1) {
		lines += strings.Count(strings.TrimSpace(c), "\n") + 1
		said = append(said, strings.Split(tables.ReplaceAllString(marks.ReplaceAllString(c, ""), ""), "\n\n")...)
	}
	return said, lines
}

// prose returns the comments and the texts of several words of a Go file, and the lines of comments.
func prose(t *testing.T, name string, text []byte) (said []string, lines int) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
	expect.OK(t, err)
	for _, c := range file.Comments {
		for _, line := range c.List {
			lines += 1 + strings.Count(line.Text, "\n")
		}
		for paragraph := range strings.SplitSeq(c.Text(), "\n\n") {
			if !strings.HasPrefix(paragraph, "\t") { // an equation or a table
				said = append(said, paragraph)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING && !strings.HasSuffix(name, "_test.go") {
			text := strings.Trim(literal.Value, "\"`")
			if _, doc, is := strings.Cut(text, " doc:\""); is { // of a setting's tags
				text = doc
			}
			for paragraph := range strings.SplitSeq(text, "\n\n") {
				if len(strings.Fields(paragraph)) > 3 {
					said = append(said, paragraph)
				}
			}
		}
		return true
	})
	return said, lines
}

// sentenceEnd is a full stop, a semicolon or a colon before a space or the end.
var sentenceEnd = regexp.MustCompile(`[.;:?!]["')]?(\s|$)`)

// faults returns the riddles of a text and the beginnings of its long sentences.
func faults(text string) []string {
	hits := riddles.FindAllString(text, -1)
	for _, sentence := range sentenceEnd.Split(text, -1) {
		if words := strings.Fields(sentence); len(words) > mostWords {
			hits = append(hits, fmt.Sprintf("%d words: %s …", len(words), strings.Join(words[:6], " ")))
		}
	}
	return hits
}
