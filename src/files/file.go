package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of files in bytes. A file beyond its bound was named by mistake. It is refused before any
// of it is read.
const (
	Settings = 1 << 18  // TOML, written by hand: twenty times the size of all settings with comments
	Network  = 1 << 20  // TOML: the speeds of a hundred thousand ranks
	Note     = 1 << 20  // a single JSON object of a run: its provenance
	Loads    = 16 << 20 // numbers by layer: a million layers
	Schedule = 16 << 20 // about six bytes for each instruction: a thousand stages of a thousand microbatches
	piped    = 1 << 30  // records of a run from a pipe, kept in memory; records on a disk have no bound
	Replay   = 1 << 30  // the loads of a run, kept in memory
	Text     = 16 << 30 // text of a corpus, which is kept in memory; token files are mapped and have no bound
	Unbound  = 1 << 62  // for files that are mapped, or read in parts
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Regular opens a regular file of at most limit bytes for reading at any offset. It never blocks,
// as opening a FIFO would. The second result is the size of the file.
func Regular(path string, limit int64) (*os.File, int64, error) {
	info, err := os.Stat(path) // before opening: opening a device may have an effect
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		failed.Op = "open" // the name that users know
	}
	if err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil { // again: the name may refer to another file by now
		err = check(path, info, limit)
	}
	if err == nil && isKernels(f) {
		err = fmt.Errorf("%s: a file that the kernel makes up, want a regular file of a disk", path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// check returns an error unless a file is regular and has at most limit bytes.
func check(path string, info fs.FileInfo, limit int64) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %s, want a regular file", path, kind(info.Mode()))
	}
	if info.Size() > limit {
		return fmt.Errorf("%s: %d bytes, want at most %d", path, info.Size(), limit)
	}
	return nil
}

// kernels are the magic numbers of file systems whose files the kernel generates on read: proc,
// sysfs, debugfs and tracefs (Linux, include/uapi/linux/magic.h). Stat calls their files regular,
// and some of them wait for events, for example /proc/kmsg.
var kernels = []int64{0x9fa0, 0x62656572, 0x64626720, 0x74726163}

// isKernels reports whether the kernel generates the content of an open file.
func isKernels(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	found := false
	_ = raw.Control(func(fd uintptr) { // the file is open
		var s syscall.Statfs_t
		found = syscall.Fstatfs(int(fd), &s) == nil && slices.Contains(kernels, int64(s.Type))
	})
	return found
}

// kind names a kind of file other than regular.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// Open opens a file of at most limit bytes for reading from its begin. Stdin, /dev/stdin and
// /dev/fd/N may also be pipes or terminals; at most limit bytes of them are read.
func Open(path string, limit int64) (io.ReadCloser, error) {
	switch {
	case path == Stdin:
		if err := checkFIFO(path, os.Stdin.Fd()); err != nil {
			return nil, err
		}
		return &bounded{path, io.NopCloser(os.Stdin), limit, limit}, nil
	case isPiped(path):
		f, err := openDescriptor(path)
		if err != nil {
			return nil, err
		}
		return &bounded{path, f, limit, limit}, nil
	}
	f, _, err := Regular(path, limit)
	if err != nil {
		return nil, err
	}
	return &bounded{path, f, limit, limit}, nil
}

// isPiped reports whether a path may be that of a pipe.
func isPiped(path string) bool {
	return path == Stdin || path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
}

// openDescriptor opens /dev/stdin or /dev/fd/N. A FIFO is not opened a second time: that would wait
// for a writer, who may have come and gone.
func openDescriptor(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return os.Open(path)
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(path, "/dev/fd/")) // 0: /dev/stdin
	if err := checkFIFO(path, uintptr(n)); err != nil {
		return nil, err
	}
	again, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(again), path), nil
}

// checkFIFO refuses a FIFO that this process has open for writing too: reading it would never end.
func checkFIFO(path string, fd uintptr) error {
	var s unix.Stat_t
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err == nil && unix.Fstat(int(fd), &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFIFO && flags&unix.O_ACCMODE != unix.O_RDONLY {
		return fmt.Errorf("%s: a FIFO open for writing, want one open for reading alone", path)
	}
	return nil
}

// bounded reads at most limit bytes; left is the rest of the limit. If there are more bytes it
// returns an error: a regular file may grow while it is read.
type bounded struct {
	path string
	io.ReadCloser
	limit, left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		return int(b.left), fmt.Errorf("%s: more than %d bytes, want at most these", b.path, b.limit)
	}
	b.left -= int64(n)
	return n, err
}

// Read returns the content of a file, opened by Open.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
