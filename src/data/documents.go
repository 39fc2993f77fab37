package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"dynmo/src/files"
)

// Document is a text of a file.
type Document struct {
	Text   io.Reader
	Record int64 // number of the record that has the text, from 1; 0: the text is the file
	Size   int64 // bytes, of a file that is text; 0: unknown
}

// Documents reads the documents of a file in order: a text file is one, each line of JSON lines and each row
// of Parquet another. Text and JSON lines may be compressed with gzip or zstd. The first bytes tell the
// format.
type Documents struct {
	path  string
	at    func() int64 // bytes of the file that were read
	next  func() (Document, error)
	close func() error
}

// Next returns the next document, io.EOF behind the last. Its text is valid until the next call. Errors
// name file and record.
func (d *Documents) Next() (Document, error) {
	doc, err := d.next()
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", d.path, err)
	}
	return doc, err
}

// At returns how many bytes of the file were read so far.
func (d *Documents) At() int64 { return d.at() }

// Close closes the file.
func (d *Documents) Close() error { return d.close() }

// foreign are formats that people keep texts in and that are not read, by their first bytes.
var foreign = []struct{ magic, name, way string }{
	{"PK\x03\x04", "a zip archive", "unpack it"},
	{"BZh", "compressed with bzip2", "bunzip2 it, or use gzip or zstd"},
	{"\xfd7zXZ", "compressed with xz", "unxz it, or use gzip or zstd"},
	{"\x04\x22\x4d\x18", "compressed with lz4", "decompress it, or use gzip or zstd"},
	{"7z\xbc\xaf", "a 7-Zip archive", "unpack it"},
	{"%PDF", "a PDF", "convert it to text"},
	{"ARROW1", "an Arrow file", "write it as Parquet"},
	{"\xff\xff\xff\xff", "an Arrow stream, as datasets.save_to_disk writes it", "write it with to_parquet or to_json"},
	{"\x93NUMPY", "a NumPy array", "write it as a token file (.bin)"},
	{"\x89HDF", "an HDF5 file", "write it as Parquet"},
	{"SQLite format 3", "an SQLite database", "write it as JSON lines"},
	{"\xff\xfe", "text in UTF-16", "convert it to UTF-8"},
	{"\xfe\xff", "text in UTF-16", "convert it to UTF-8"},
}

// sniffed is the number of bytes that tell the format of a file.
const sniffed = 1 << 16

// Documents opens the file. keys are the members or columns that have the text; several are joined with
// line feeds. A file is JSON lines if its first line is an object that has the first key, or if its name
// ends in .jsonl or .ndjson, with .gz or .zst behind it or not.
func (f File) Documents(keys []string) (*Documents, error) {
	in, size, err := files.Regular(f.Path, files.Unbound)
	if err != nil {
		return nil, err
	}
	d, err := f.documents(in, size, keys)
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return d, nil
}

func (f File) documents(in *os.File, size int64, keys []string) (*Documents, error) {
	counted := &counter{Reader: in}
	d := &Documents{path: f.Path, at: func() int64 { return counted.n }, close: in.Close}
	raw := bufio.NewReaderSize(counted, sniffed)
	head, err := raw.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	text, name, whole := raw, f.Path, size
	switch magic := string(head); {
	case magic == "PAR1":
		return d, d.readParquet(in, size, keys)
	case strings.HasPrefix(magic, "\x1f\x8b"):
		in, err := gzip.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		text, name, whole = bufio.NewReaderSize(unpacked{in, "gzip"}, sniffed), strings.TrimSuffix(name, ".gz"), 0
	case magic == "\x28\xb5\x2f\xfd":
		packed, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		d.close = func() error { packed.Close(); return in.Close() }
		text, name, whole = bufio.NewReaderSize(unpacked{packed, "zstd"}, sniffed), strings.TrimSuffix(name, ".zst"), 0
	}
	head, err = text.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, x := range foreign {
		if strings.HasPrefix(string(head), x.magic) {
			return nil, fmt.Errorf("%s, want text, JSON lines or Parquet, plain or with gzip or zstd: %s", x.name, x.way)
		}
	}
	if isJSONLines(name, head, keys[0]) {
		d.readLines(text, keys)
		return d, nil
	}
	done := false
	d.next = func() (Document, error) {
		if done {
			return Document{}, io.EOF
		}
		done = true
		return Document{Text: text, Size: whole}, nil
	}
	return d, nil
}

// unpacked reads a compressed file.
type unpacked struct {
	io.Reader
	name string
}

func (u unpacked) Read(dst []byte) (int, error) {
	n, err := u.Reader.Read(dst)
	if err != nil && !errors.Is(err, io.EOF) {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file is cut short")
		}
		err = fmt.Errorf("%s: %w", u.name, err)
	}
	return n, err
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(dst []byte) (int, error) {
	n, err := c.Reader.Read(dst)
	c.n += int64(n)
	return n, err
}

// isJSONLines reports whether a file that begins with head is JSON lines with texts.
func isJSONLines(name string, head []byte, key string) bool {
	if strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".ndjson") {
		return true
	}
	line, _, whole := bytes.Cut(head, []byte("\n"))
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("{")) {
		return false
	}
	if !whole && len(head) == sniffed { // a long first line
		return bytes.Contains(line, fmt.Appendf(nil, "%q:", key)) || bytes.Contains(line, fmt.Appendf(nil, "%q :", key))
	}
	texts, err := members(string(line), []string{key})
	return err == nil && texts[0] != nil
}
