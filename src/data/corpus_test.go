package data

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

func TestOpen(t *testing.T) {
	dir := expect.Tree(t, map[string]string{
		"b.go": "bbbb", "a/z.go": "az", "a/a.go": "aa", "c.txt": "text", "empty.go": "", "d/e.md": "mark",
	})
	expect.OK(t, os.Symlink(filepath.Join(dir, "b.go"), filepath.Join(dir, "link.go")))
	linked := filepath.Join(t.TempDir(), "linked")
	expect.OK(t, os.Symlink(dir, linked))
	goFiles := []string{".go"}
	names := expect.Tree(t, map[string]string{"text.bin": "größe", "lines.jsonl": "{\"text\": \"a\\u0000\"}\n", "README": "\ufeffread me"})
	for _, c := range []struct {
		name string
		cfg  config.Data
		want string
	}{
		{"one ending", config.Data{Path: dir, Extensions: goFiles}, "aa\x00az\x00bbbb\x00bbbb"},
		{"two endings", config.Data{Path: dir, Extensions: []string{".txt", ".md"}}, "text\x00mark"},
		{"every file", config.Data{Path: dir}, "aa\x00az\x00bbbb\x00text\x00mark\x00bbbb"},
		{"limit inside a file", config.Data{Path: dir, Extensions: goFiles, LimitBytes: 4}, "aa\x00a"},
		{"limit at a separator", config.Data{Path: dir, Extensions: goFiles, LimitBytes: 3}, "aa\x00"},
		{"limit at the end of a file", config.Data{Path: dir, Extensions: goFiles, LimitBytes: 5}, "aa\x00az"},
		{"limit beyond the end", config.Data{Path: dir, Extensions: goFiles, LimitBytes: 99}, "aa\x00az\x00bbbb\x00bbbb"},
		{"a file, whatever its name", config.Data{Path: filepath.Join(dir, "c.txt"), Extensions: goFiles}, "text"},
		{"a file with a limit", config.Data{Path: filepath.Join(dir, "c.txt"), LimitBytes: 3}, "tex"},
		{"text with the name of a token file", config.Data{Path: filepath.Join(names, "text.bin")}, "größe"},
		{"no ending, and a byte order mark", config.Data{Path: filepath.Join(names, "README")}, "\ufeffread me"},
		{"a limit inside a character", config.Data{Path: filepath.Join(names, "text.bin"), LimitBytes: 3}, "gr\xc3"},
		{"a link to a directory", config.Data{Path: linked, Extensions: goFiles}, "aa\x00az\x00bbbb\x00bbbb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			corpus, err := Open(c.cfg, 256, 1)
			expect.OK(t, err)
			if got := string(corpus.content[0].raw); got != c.want {
				t.Errorf("text %q, want %q", got, c.want)
			}
			sum := sha256.Sum256([]byte(c.want))
			if corpus.Hash() != hex.EncodeToString(sum[:]) {
				t.Errorf("hash %s of %q", corpus.Hash(), c.want)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := expect.Tree(t, map[string]string{"short.go": "12345678", "empty/none.go": "", "other/a.txt": "text"})
	sparse := filepath.Join(dir, "sparse.txt")
	expect.OK(t, os.WriteFile(sparse, nil, 0o666))
	expect.OK(t, os.Truncate(sparse, 1<<40))
	expect.OK(t, syscall.Mkfifo(filepath.Join(dir, "fifo.bin"), 0o666))
	expect.OK(t, os.Mkdir(filepath.Join(dir, "wrong"), 0o777))
	for name, text := range map[string]string{
		"latin.txt": "caf\xe9 au lait", "zero.csv": "eight by\x00tes", "utf16": "\xff\xfeh\x00i\x00", "cut.txt": "12345678€"[:10],
	} {
		expect.OK(t, os.WriteFile(filepath.Join(dir, "wrong", name), []byte(text), 0o666))
	}
	for _, c := range []struct {
		name string
		cfg  config.Data
		want string // DIR stands for dir
	}{
		{"Latin-1", config.Data{Path: filepath.Join(dir, "wrong", "latin.txt")},
			`data: data.path = "DIR/wrong/latin.txt": DIR/wrong/latin.txt: byte 3: 0xe9: the text is not UTF-8`},
		{"a zero byte in a directory", config.Data{Path: filepath.Join(dir, "wrong"), Extensions: []string{".csv"}},
			`data: data.path = "DIR/wrong": DIR/wrong/zero.csv: byte 8: 0x00: a zero byte, want text in UTF-8`},
		{"a zero byte", config.Data{Path: filepath.Join(dir, "wrong", "zero.csv")},
			`data: data.path = "DIR/wrong/zero.csv": DIR/wrong/zero.csv: byte 8: 0x00: a zero byte, want text in UTF-8`},
		{"UTF-16", config.Data{Path: filepath.Join(dir, "wrong", "utf16")},
			`data: data.path = "DIR/wrong/utf16": DIR/wrong/utf16: text in UTF-16, want text, JSON lines or Parquet, plain or with gzip or zstd: convert it to UTF-8`},
		{"a character cut off", config.Data{Path: filepath.Join(dir, "wrong", "cut.txt")},
			`data: data.path = "DIR/wrong/cut.txt": DIR/wrong/cut.txt: byte 8: 0xe2: the text is not UTF-8`},
		{"missing", config.Data{Path: filepath.Join(dir, "absent")},
			`data: data.path = "DIR/absent": no such file or directory`},
		{"no file with the ending", config.Data{Path: filepath.Join(dir, "other"), Extensions: []string{".go", ".md"}},
			`data: data.path = "DIR/other": wanted at least 9 bytes, a sequence (model.sequence = 8) and the token after it; found no text in files ending in .go, .md (data.extensions; [] reads every file)`},
		{"empty file", config.Data{Path: filepath.Join(dir, "empty/none.go")},
			`data: data.path = "DIR/empty/none.go": wanted at least 9 bytes, a sequence (model.sequence = 8) and the token after it; found 0 bytes in 1 file(s)`},
		{"shorter than a sequence and a token", config.Data{Path: filepath.Join(dir, "short.go")},
			`data: data.path = "DIR/short.go": wanted at least 9 bytes, a sequence (model.sequence = 8) and the token after it; found 8 bytes in 1 file(s)`},
		{"limit too low", config.Data{Path: dir, LimitBytes: 5},
			`data: data.path = "DIR": wanted at least 9 bytes, a sequence (model.sequence = 8) and the token after it; found 5 bytes in 2 file(s) (data.limit_bytes = 5)`},
		{"more than memory", config.Data{Path: filepath.Join(dir, "sparse.txt")},
			`data: data.path = "DIR/sparse.txt": 1099511627776 bytes of text, wanted at most 17179869184 (data.limit_bytes), or a token file of them (dynmo data prepare)`},
		{"a FIFO for a token file", config.Data{Path: filepath.Join(dir, "fifo.bin")},
			`data: data.path = "DIR/fifo.bin": a FIFO, want a regular file`},
		{"a device", config.Data{Path: "/dev/null"},
			`data: data.path = "/dev/null": a device, want a regular file`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.cfg, 256, 8)
			if err == nil {
				t.Fatal("opened")
			}
			if got := strings.ReplaceAll(err.Error(), dir, "DIR"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestATextThatShrinksIsNamed(t *testing.T) {
	f := File{Path: "a.txt", Size: 6}
	err := (&texts{most: 100}).add(Document{Text: strings.NewReader("1234"), Size: 6}, f)
	if want := "a.txt: 4 of 6 bytes read: the file was changed"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestGoSource(t *testing.T) {
	root := expect.Tree(t, map[string]string{"src/fmt/print.go": "package fmt"})
	bin := expect.Tree(t, map[string]string{"go": "#!/bin/sh\n[ \"$PWD\" = / ] && echo " + root + "\n"})
	expect.OK(t, os.Chmod(filepath.Join(bin, "go"), 0o700))
	want := filepath.Join(root, "src")
	empty := t.TempDir()
	for _, c := range []struct{ name, goroot, path, installed string }{
		{"environment", root, empty, empty},
		{"go command", "", bin, empty},
		{"environment that is wrong", empty, bin, empty},
		{"installed", "", empty, root},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOROOT", c.goroot)
			t.Setenv("PATH", c.path)
			if got, err := goSource(c.installed); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
	t.Run("nowhere", func(t *testing.T) {
		t.Setenv("GOROOT", "")
		t.Setenv("PATH", empty)
		_, err := goSource(empty)
		want := "data.path is empty and no Go source tree was found; tried $GOROOT (not set), " +
			`go env GOROOT (exec: "go": executable file not found in $PATH), ` + empty +
			" (no such file or directory); wanted a file or directory of text"
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

func TestDefaultCorpusIsTheGoSourceTree(t *testing.T) {
	corpus, err := Open(config.Data{Extensions: []string{".go"}, LimitBytes: 1 << 20}, 256, 64)
	if err != nil {
		t.Skip("no Go source tree on this machine:", err)
	}
	if len(corpus.content[0].raw) != 1<<20 || !strings.Contains(string(corpus.content[0].raw), "\npackage ") {
		t.Errorf("%d bytes, want 1 MiB of Go source", len(corpus.content[0].raw))
	}
}
