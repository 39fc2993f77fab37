package src_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// ceilings bound what makes the house hard to understand. A ceiling may only fall. The aim is where
// the redesign leads; a ceiling that has reached its aim stays there. Only a commit that adds a
// feature may raise the two ceilings of lines, by the lines that it adds, and it says so. A binary
// file, one with a NUL byte, has no lines.
var ceilings = []struct {
	what         string
	ceiling, aim int
	measure      func(h *tracked) int
}{
	{"Go files outside of its kind, kernel and tests that name mod", 3, 6, func(h *tracked) int { return h.naming("mod") }},
	{"the same for moe", 8, 10, func(h *tracked) int { return h.naming("moe") }},
	{"the same for expert", 19, 30, func(h *tracked) int { return h.naming("expert") }},
	{"Go files outside of its family, kernel and tests that name llama", 17, 18, func(h *tracked) int { return h.naming("llama") }},
	{"the same for gpt2", 13, 13, func(h *tracked) int { return h.naming("gpt2") }},
	{"calls of Dynamic.Has outside of kind and config", 0, 0, (*tracked).asksForKinds},
	{"type assertions on parts of a model outside of their own kind or family", 0, 0, (*tracked).castsParts},
	{"lines of train without tests", 1299, 1300, func(h *tracked) int { return h.lines(`^src/train/[^/]*\.go$`, isNoTest) }},
	{"packages of this module that train imports", 20, 20, func(h *tracked) int { return h.imports("src/train") }},
	{"lines of the function Loop", 38, 100, func(h *tracked) int { return h.function("src/train/loop.go", "Loop") }},
	{"lines of Go without tests", 95122, 72000, func(h *tracked) int { return h.lines(`\.go$`, isNoTest) }},
	{"lines in all", 180513, 145000, func(h *tracked) int { return h.lines(`.`, func(string) bool { return true }) }},
	{"lines of the README", 115, 150, func(h *tracked) int { return h.lines(`^README\.md$`, isNoTest) }},
}

func TestCeilings(t *testing.T) {
	h := newTracked(t)
	for _, c := range ceilings {
		got := c.measure(h)
		t.Logf("%d %s, at most %d, aim %d", got, c.what, c.ceiling, c.aim)
		if got > c.ceiling {
			t.Errorf("%d %s, want at most %d: the house grows where it should shrink", got, c.what, c.ceiling)
		}
	}
}

// tracked is the text of the files that the repository has, by path.
type tracked struct {
	t     *testing.T
	files map[string][]byte
}

func newTracked(t *testing.T) *tracked {
	list, err := exec.Command("git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("no git, or no clone:", err)
	}
	h := &tracked{t, make(map[string][]byte)}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(path.Join("..", file))
		if err == nil { // a file that is deleted and not yet committed is not there
			h.files[file] = text
		}
	}
	return h
}

func isNoTest(file string) bool { return !strings.HasSuffix(file, "_test.go") }

// lines returns the lines of the files whose path matches a pattern.
func (h *tracked) lines(pattern string, counts func(file string) bool) (n int) {
	like := regexp.MustCompile(pattern)
	for file, text := range h.files {
		if like.MatchString(file) && counts(file) && bytes.IndexByte(text, 0) < 0 {
			n += bytes.Count(text, []byte("\n"))
		}
	}
	return n
}

// naming returns the number of files with a word, or the word with an s. The word stands by itself,
// or begins or ends a part of a name.
func (h *tracked) naming(word string) (n int) {
	capital := strings.ToUpper(word[:1]) + word[1:]
	like := regexp.MustCompile(`\b` + word + `s?\b|\b` + word + `s?[A-Z_]|` + capital + `s?([A-Z_]|\b)`)
	for file, text := range h.files {
		if strings.HasSuffix(file, ".go") && isNoTest(file) && !strings.HasPrefix(file, "src/kernel/") &&
			!strings.HasPrefix(file, "src/kind/"+word) && !strings.HasPrefix(file, "src/family/"+word) && !strings.HasPrefix(file, "src/kind/moe/") && like.Match(text) {
			n++
		}
	}
	return n
}

// asksForKinds returns the calls of Has with the name of a kind, outside of kind and config.
func (h *tracked) asksForKinds() (n int) {
	like := regexp.MustCompile(`\.Has\("[a-z]+"\)`)
	for file, text := range h.files {
		if strings.HasSuffix(file, ".go") && isNoTest(file) && !strings.HasPrefix(file, "src/kind/") && !strings.HasPrefix(file, "src/config/") {
			n += len(like.FindAll(text, -1))
		}
	}
	return n
}

// castsParts returns the number of type assertions and cases of type switches that ask for a part.
// A part is a type with a method BackwardInput. Those inside the part's own kind or family do not
// count.
func (h *tracked) castsParts() (n int) {
	method := regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)\) BackwardInput\(`)
	cast := regexp.MustCompile(`(?:\.\(|\bcase )\*(?:\w+\.)?(\w+)[:),]`)
	parts := map[string][]string{} // the files that have parts, by the parts' names
	for file, text := range h.files {
		for _, m := range method.FindAllSubmatch(text, -1) {
			parts[string(m[1])] = append(parts[string(m[1])], file)
		}
	}
	for file, text := range h.files {
		own := regexp.MustCompile(`^src/(kind|family)/`).MatchString(file)
		for _, m := range cast.FindAllSubmatch(text, -1) {
			for _, of := range parts[string(m[1])] {
				if strings.HasSuffix(file, ".go") && isNoTest(file) && !(own && path.Dir(of) == path.Dir(file)) {
					h.t.Logf("%s: %s", file, m[0])
					n++
				}
			}
		}
	}
	return n
}

// imports returns how many packages of this module a folder imports.
func (h *tracked) imports(folder string) int {
	var list []string
	for file, text := range h.files {
		if path.Dir(file) != folder || !isNoTest(file) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		expect.OK(h.t, err)
		for _, i := range f.Imports {
			if strings.HasPrefix(i.Path.Value, `"`+module) {
				list = append(list, i.Path.Value)
			}
		}
	}
	slices.Sort(list)
	return len(slices.Compact(list))
}

// function returns the lines of a function.
func (h *tracked) function(file, name string) int {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, h.files[file], 0)
	expect.OK(h.t, err)
	for _, d := range f.Decls {
		if f, is := d.(*ast.FuncDecl); is && f.Name.Name == name {
			return fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
		}
	}
	h.t.Errorf("%s has no function %s", file, name)
	return 0
}
