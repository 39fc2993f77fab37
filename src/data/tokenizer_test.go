package data

import (
	"path/filepath"
	"testing"

	"dynmo/src/expect"
)

// TestTokenizerBeside: the files beside the first token file come before those of its directory. Text has no
// tokenizer, whatever lies beside it.
func TestTokenizerBeside(t *testing.T) {
	const ids = "\x01\x00\x02\x00\xff\xff"
	for _, c := range []struct {
		name, path string
		files      map[string]string
		want       string // tokenizer.json
	}{
		{"beside the file", "", map[string]string{"a.bin": ids, "a.tokenizer/tokenizer.json": "a", "tokenizer.json": "b"}, "a"},
		{"in the directory", "", map[string]string{"a.txt": "text", "b.bin": ids, "tokenizer.json": "b"}, "b"},
		{"no tokenizer", "", map[string]string{"b.bin": ids}, ""},
		{"text", "", map[string]string{"a.txt": "text", "tokenizer.json": "b"}, ""},
		{"the toolchain's source", "source", nil, ""},
		{"no file", "gone.bin", nil, ""},
	} {
		path := filepath.Join(expect.Tree(t, c.files), c.path)
		texts, dir, err := TokenizerBeside(path)
		if gone := c.path == "gone.bin"; string(texts[TokenizerFile]) != c.want || (dir != "") != (IsTokens(path) && !gone) || (err != nil) != gone {
			t.Errorf("%s: %q in %q: %v", c.name, texts, dir, err)
		}
	}
}
