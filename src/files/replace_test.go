package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/expect"
)

// text returns a function that writes a text.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// listed returns the names in a directory, including hidden ones.
func listed(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	expect.OK(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return strings.Join(names, " ")
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: %q, %v, want %q", path, got, err, want)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	mask := syscall.Umask(0o027)
	defer syscall.Umask(mask)
	expect.OK(t, Write("f", text("one")))
	expect.OK(t, os.Symlink("f", "link"))
	expect.OK(t, Write("link", text("two")))
	holds(t, "f", "two")
	info, err := os.Lstat("f")
	expect.OK(t, err)
	if info.Mode() != 0o640 {
		t.Errorf("mode %v, want that of the umask", info.Mode())
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		path  string
		write func(io.Writer) error
		want  string
	}{
		{"f", func(w io.Writer) error { return errors.Join(text("three")(w), broken) }, "broken"},
		{"no/f", text(""), "open no/f: no such file or directory"},
		{dir, text(""), dir + ": want a regular file"},
		{"/dev/full", text("x"), "write /dev/full: no space left on device"},
	} {
		if err := Write(c.path, c.write); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.path, err, c.want)
		}
	}
	holds(t, "f", "two")
	expect.OK(t, Write(os.DevNull, text("gone")))
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is %v now", os.DevNull, info.Mode())
	}
	if got := listed(t, dir); got != "f link" {
		t.Errorf("files %s", got)
	}
}

func TestDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	fill := func(content string) func(string) error {
		return func(dir string) error { return Write(filepath.Join(dir, "f"), text(content)) }
	}
	none := func(string) bool { return false }
	expect.OK(t, Directory("above/d", fill("one"), none))
	holds(t, "above/d/f", "one")
	expect.OK(t, Write("above/d/other", text("stays")))
	expect.OK(t, Write("above/d/old", text("goes")))
	expect.OK(t, Directory("above/d", fill("two"), func(name string) bool { return name != "other" }))
	holds(t, "above/d/f", "two")
	holds(t, "above/d/other", "stays")
	err := Directory("above/d", func(dir string) error {
		expect.OK(t, fill("three")(dir))
		return Write(filepath.Join(dir, "no", "f"), text(""))
	}, func(string) bool { return true })
	if want := "open above/d/no/f: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	holds(t, "above/d/f", "two")
	if err := Directory("above/d/f", fill(""), none); err == nil || err.Error() != "above/d/f: want a directory" {
		t.Errorf("a file: %v", err)
	}
	if got := listed(t, "above") + ", " + listed(t, "above/d"); got != "d, f other" {
		t.Errorf("files %s", got)
	}
}
