package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"dynmo/src/files"
)

// maxHeader is the longest header of a safetensors file, in bytes: the limit
// of the reference implementation.
const maxHeader = 100_000_000

// metadataKey is the key of a header's free text. It names no tensor.
const metadataKey = "__metadata__"

// File is a safetensors file whose header has been read and checked.
type File struct {
	Name     string
	Metadata map[string]string
	Tensors  []Tensor // in the order of their data

	r     io.ReaderAt
	data  int64 // offset of the first value
	close func() error
}

// Open opens a safetensors file and checks its header against its length.
// Errors name the file, and the offset or the tensor that is wrong.
func Open(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, isDirectory(path)
	}
	f, size, err := files.Regular(path, files.Unbound)
	if err != nil {
		return nil, err
	}
	return opened(path, f, size)
}

// isDirectory returns the error for a directory in place of a file. It says which command makes a
// file of the directory.
func isDirectory(path string) error {
	if _, err := os.Stat(filepath.Join(path, ConfigFile)); err == nil {
		return fmt.Errorf("%s: a Hugging Face directory, want a file: dynmo ckpt import %s -o FILE makes one", path, path)
	}
	return fmt.Errorf("%s: a directory, want a file: of a run, dynmo ckpt verify checks the checkpoints, "+
		"and dynmo ckpt export and then dynmo ckpt import make a weights file", path)
}

// opened reads the header of a file that is open, or closes it.
func opened(name string, f *os.File, size int64) (*File, error) {
	s, err := Parse(name, f, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	s.close = f.Close
	return s, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Parse reads the header of a safetensors file of `size` bytes. The file is a u64 N, then N bytes
// of JSON, possibly with trailing spaces, then data. The tensors must tile the data: each begins at
// the end of the one before and has the size of its type and shape. The last ends with the file.
func Parse(name string, r io.ReaderAt, size int64) (*File, error) {
	fail := func(offset int64, format string, args ...any) (*File, error) {
		return nil, fmt.Errorf("%s: byte %d: %w", name, offset, fmt.Errorf(format, args...))
	}
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return fail(size, "the file ends before the header's length")
	}
	if got, err := r.ReadAt(prefix[:], 0); got < len(prefix) {
		return fail(0, "%w", err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	switch left := uint64(size - 8); {
	case n > maxHeader:
		return fail(0, "header of %d bytes, want at most %d", n, maxHeader)
	case n > left:
		return fail(0, "header of %d bytes in a file that has %d left", n, left)
	}
	header := make([]byte, n)
	if got, err := r.ReadAt(header, 8); got < len(header) {
		return fail(8, "%w", err)
	}
	if !bytes.HasPrefix(header, []byte("{")) || !bytes.HasSuffix(bytes.TrimRight(header, " "), []byte("}")) {
		return fail(8, "header: want {…} and only spaces behind it")
	}
	f := &File{Name: name, Metadata: map[string]string{}, r: r, data: 8 + int64(n), close: func() error { return nil }}
	if err := (files.Value{JSON: header, At: 8}).Members(f.entry); err != nil {
		return nil, fmt.Errorf("%s: header: %w", name, err)
	}
	if err := f.tile(size - f.data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// entry reads a member of the header: a tensor or the metadata.
func (f *File) entry(name string, v files.Value) error {
	if name == metadataKey {
		return v.Members(func(key string, v files.Value) (err error) {
			f.Metadata[key], err = v.Text()
			return err
		})
	}
	t := Tensor{Name: name}
	var offsets []int64
	err := v.Members(func(key string, v files.Value) (err error) {
		switch key {
		case "dtype":
			var d string
			d, err = v.Text()
			t.DType = DType(d)
		case "shape":
			t.Shape, err = v.Integers()
		case "data_offsets":
			offsets, err = v.Integers()
		default:
			err = v.Fail("unknown key")
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case t.DType == "":
		return v.Fail("dtype is missing")
	case t.Shape == nil:
		return v.Fail("shape is missing")
	case len(offsets) != 2:
		return v.Fail("data_offsets: want [begin, end]")
	}
	t.Begin, t.End = offsets[0], offsets[1]
	f.Tensors = append(f.Tensors, t)
	return nil
}

// tile sorts the tensors by their place and checks that they fill `bytes` bytes of data without
// holes or overlaps.
func (f *File) tile(bytes int64) error {
	slices.SortStableFunc(f.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	end := int64(0)
	for _, t := range f.Tensors {
		size, err := t.size()
		switch {
		case err != nil:
		case t.Begin != end:
			err = fmt.Errorf("data begin at %d, want %d: tensors may leave no hole and not overlap", t.Begin, end)
		case t.End < t.Begin || t.End-t.Begin != size:
			err = fmt.Errorf("data_offsets [%d, %d], want %d bytes for %s %v", t.Begin, t.End, size, t.DType, t.Shape)
		case t.End > bytes:
			err = fmt.Errorf("data end at %d of %d bytes", t.End, bytes)
		}
		if err != nil {
			return fmt.Errorf("tensor %.100q: %w", t.Name, err)
		}
		end = t.End
	}
	if end != bytes {
		return fmt.Errorf("byte %d: %d bytes belong to no tensor", f.data+end, bytes-end)
	}
	return nil
}

// Offset returns the offset in the file of a tensor's first value.
func (f *File) Offset(t Tensor) int64 { return f.data + t.Begin }

// Read returns the stored values of a tensor of this file.
func (f *File) Read(t Tensor) ([]byte, error) { return f.part(nil, t, 0, t.Bytes()) }

// part appends bytes [from, to) of a tensor's values to dst.
func (f *File) part(dst []byte, t Tensor, from, to int64) ([]byte, error) {
	at, n := len(dst), int(to-from)
	dst = slices.Grow(dst, n)[:at+n]
	if got, err := f.r.ReadAt(dst[at:], f.data+t.Begin+from); got < n {
		return nil, fmt.Errorf("%s: tensor %.100q: %w", f.Name, t.Name, err)
	}
	return dst, nil
}
