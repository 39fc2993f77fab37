package files

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// File is a file that is written under a temporary name in the directory of its path. Commit or
// Discard ends it.
type File struct {
	*os.File
	path string
}

// Create begins to write the file path, or its replacement. If path is a symbolic link, the link
// stays and its target is replaced. Errors: path is a directory or a special file, or cannot be
// created.
func Create(path string) (*File, error) {
	path, info := place(path)
	if info != nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a regular file", path)
	}
	name := beside(path)
	track(name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // os.CreateTemp ignores the umask
	if err != nil {
		discard(name)
		return nil, under(path, name, err)
	}
	return &File{f, path}, nil
}

// Commit writes the file to disk and then gives it its own name. On an error it discards the file.
func (f *File) Commit() error {
	rename := func() error { return os.Rename(f.Name(), f.path) }
	for _, step := range []func() error{f.Sync, f.Close, func() error { return locked(rename) }} {
		if err := step(); err != nil {
			return f.fail(err)
		}
	}
	discard(f.Name())
	return settle(f.path)
}

// Discard removes the temporary file.
func (f *File) Discard() {
	_ = f.Close() // it may be closed already
	discard(f.Name())
}

// fail discards the file and returns its error under the file's own name.
func (f *File) fail(err error) error {
	f.Discard()
	return under(f.path, f.Name(), err)
}

// Write creates or replaces the file path with the output of write. A special file, such as a FIFO
// or /dev/null, is not replaced: write writes into it.
func Write(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(buffered(f, write), f.Close())
	}
	f, err := Create(path)
	if err != nil {
		return err
	}
	if err := buffered(f, write); err != nil {
		return f.fail(err)
	}
	return f.Commit()
}

// WriteText is Write of a text.
func WriteText(path, text string) error {
	return Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

func buffered(f io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(f, 1<<20)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}

// Directory creates the directory path, its parents, and the files that fill writes into the
// directory dir. If path exists, files of the same names are replaced once all new files are
// complete. Stale files are removed; other files stay.
func Directory(path string, fill func(dir string) error, stale func(name string) bool) error {
	path, info := place(path)
	if info != nil && !info.IsDir() {
		return fmt.Errorf("%s: want a directory", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	dir := beside(path)
	track(dir)
	defer discard(dir)
	err := os.Mkdir(dir, 0o777)
	if err != nil {
		return under(path, dir, err)
	}
	if err = fill(dir); err == nil {
		err = locked(func() error {
			err := os.Rename(dir, path)
			if errors.Is(err, fs.ErrExist) { // path is not empty
				err = cmp.Or(remove(path, stale), move(dir, path))
			}
			return err
		})
	}
	if err != nil {
		return under(path, dir, err)
	}
	return settle(path)
}

// remove removes the stale files of a directory.
func remove(dir string, stale func(name string) bool) error {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if err == nil && !f.IsDir() && stale(f.Name()) {
			err = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	return err
}

// move moves all files of one directory to another.
func move(from, to string) error {
	files, err := os.ReadDir(from)
	for _, f := range files {
		err = cmp.Or(err, os.Rename(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())))
	}
	return err
}

// place resolves symbolic links in a path. It returns the resulting path and its info; nil if
// nothing exists there.
func place(path string) (string, fs.FileInfo) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Stat(path)
	if err != nil {
		return path, nil
	}
	return path, info
}

// beside returns a temporary name in the directory of a path.
func beside(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x", filepath.Base(path), rand.Uint64()))
}

// under returns err with path in its text in place of the temporary name.
func under(path, temporary string, err error) error { return renamed{err, temporary, path} }

type renamed struct {
	error
	temporary, path string
}

func (r renamed) Error() string { return strings.ReplaceAll(r.error.Error(), r.temporary, r.path) }
func (r renamed) Unwrap() error { return r.error }

// settle syncs the directory of a file, so that the file's name survives a crash of the machine.
func settle(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
