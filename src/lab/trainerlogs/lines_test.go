package trainerlogs

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestPlain: compressed files, and a byte order mark, change nothing. A compressed file that is cut is refused.
func TestPlain(t *testing.T) {
	const layers = "embedding,1,2\nblock.0,1,2\nhead,1,2\n"
	hook := ""
	for _, name := range []string{"embedding", "block.0", "head"} {
		hook += `{"layer": "` + name + `", "forward_ms": 1, "backward_ms": 2}` + "\n"
	}
	compressed := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write([]byte(text))
		expect.OK(t, err)
		expect.OK(t, z.Close())
		return b.String()
	}
	table := "name,forward_ms,backward_ms\n" + layers
	for _, c := range []struct{ name, flag, text, want string }{
		{"plain", "csv", table, ""},
		{"byte order mark", "csv", "\ufeff" + table, ""},
		{"ends of lines", "csv", strings.ReplaceAll(table, "\n", "\r\n"), ""},
		{"compressed", "csv", compressed(table), ""},
		{"compressed lines", "hook", compressed(hook), ""},
		{"cut", "hook", compressed(strings.Repeat(hook, 100))[:60], "compressed, and cut off in the middle, want a whole file"},
		{"begin alone", "hook", "\x1f\x8b", "begins as a compressed file, and is none"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		expect.OK(t, os.WriteFile(path, []byte(c.text), 0o644))
		_, err := read(c.flag, path, Run{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
