package files

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/expect"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	expect.OK(t, os.WriteFile(path, []byte("12345"), 0o666))
	if text, err := Read(path, 5); err != nil || string(text) != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	f, size, err := Regular(path, 5)
	expect.OK(t, err)
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "12345" || size != 5 {
		t.Errorf("%q of %d bytes, %v", text, size, err)
	}
}

// TestOpenRefuses: nothing but regular files within the bound, and nothing that waits.
func TestOpenRefuses(t *testing.T) {
	expect.NewFault(t, "F29", "")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	expect.OK(t, os.WriteFile(at("long"), []byte("123456"), 0o666))
	expect.OK(t, syscall.Mkfifo(at("fifo"), 0o666))
	expect.OK(t, os.Symlink("fifo", at("link")))
	expect.OK(t, os.Truncate(at("long"), 1<<40)) // nothing of it is read
	socket, err := net.Listen("unix", at("socket"))
	expect.OK(t, err)
	defer socket.Close()
	for _, c := range []struct{ path, want string }{
		{at("fifo"), ": a FIFO, want a regular file"},
		{at("link"), ": a FIFO, want a regular file"},
		{at("socket"), ": a socket, want a regular file"},
		{dir, ": a directory, want a regular file"},
		{"/dev/zero", ": a device, want a regular file"},
		{"/proc/self/status", ": a file that the kernel makes up, want a regular file of a disk"},
		{at("long"), ": 1099511627776 bytes, want at most 5"},
		{at("absent"), ": no such file or directory"},
	} {
		if _, err := Read(c.path, 5); err == nil || !strings.HasSuffix(err.Error(), c.path+c.want) {
			t.Errorf("%s: %v, want %s", c.path, err, c.want)
		}
	}
	// Reading /proc/kmsg waits for the kernel's next message. Without privilege opening it fails.
	if _, err := Read("/proc/kmsg", 5); err == nil || !strings.Contains(err.Error(), "/proc/kmsg: ") {
		t.Errorf("/proc/kmsg: %v", err)
	}
}

// TestReadStdin: a pipe is read by descriptor, and no more of it than the bound.
func TestReadStdin(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"12345", ""},
		{"123456", "-: more than 5 bytes, want at most these"},
	} {
		r, w, err := os.Pipe()
		expect.OK(t, err)
		_, err = w.WriteString(c.text)
		expect.OK(t, err)
		expect.OK(t, w.Close())
		stdin := os.Stdin
		os.Stdin = r
		text, err := Read(Stdin, 5)
		os.Stdin = stdin
		r.Close()
		if err == nil && (c.want != "" || string(text) != c.text) || err != nil && err.Error() != c.want {
			t.Errorf("%s: %q, %v", c.text, text, err)
		}
	}
	// A named FIFO whose writer has come and gone.
	name := filepath.Join(t.TempDir(), "fifo")
	expect.OK(t, syscall.Mkfifo(name, 0o600))
	both, err := os.OpenFile(name, os.O_RDWR, 0)
	expect.OK(t, err)
	for _, c := range []struct {
		flags int
		want  string
	}{{syscall.O_RDWR, ": a FIFO open for writing, want one open for reading alone"}, {syscall.O_RDONLY, ""}} {
		fd, err := syscall.Open(name, c.flags, 0)
		expect.OK(t, err)
		path := fmt.Sprint("/dev/fd/", fd)
		if c.want == "" {
			_, err = both.WriteString("12345")
			expect.OK(t, errors.Join(err, both.Close()))
		}
		text, err := Read(path, 5)
		expect.OK(t, syscall.Close(fd))
		if c.want != "" && (err == nil || err.Error() != path+c.want) || c.want == "" && (err != nil || string(text) != "12345") {
			t.Errorf("%q, %v, want %q", text, err, c.want)
		}
	}
	if _, err := Read("/dev/fd/987654", 5); err == nil {
		t.Error("a descriptor that is not open was read")
	}
}
