package data

import (
	"bufio"
	"compress/bzip2"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"dynmo/src/input"
)

// Suffixes of files that are read as dumps of a wiki.
const (
	dumpEnding       = ".xml"
	packedDumpEnding = ".xml.bz2"
)

// buffered is the number of bytes of a dump that are read or decompressed ahead of their use.
const buffered = 1 << 20

// isDump reports whether a path is read as a dump rather than text.
func isDump(path string) bool {
	return strings.HasSuffix(path, dumpEnding) || strings.HasSuffix(path, packedDumpEnding)
}

// pages reads a dump and yields its articles in order. It keeps one page and two buffers in memory,
// for a dump of any length. The last work is empty and stands for the rest of the file after the
// last article.
func pages(path string, yield func(work) error) error {
	f, err := input.Open(path, input.Unbound)
	if err != nil {
		return InputError{err}
	}
	defer f.Close()
	raw := &counter{r: bufio.NewReaderSize(f, buffered)}
	done := int64(0) // bytes of the file that the yielded works stand for
	account := func(w work) error {
		w.read = raw.n.Load() - done
		done += w.read
		return yield(w)
	}
	article := func(page string, hidden map[string]bool) error {
		return account(work{text: page, hidden: hidden, first: true, last: true, path: path})
	}
	if strings.HasSuffix(path, packedDumpEnding) {
		err = unpack(path, raw, func(r io.Reader) error { return articles(path+" (unpacked)", r, article) })
	} else {
		err = articles(path, raw, article)
	}
	if err != nil {
		return err
	}
	return account(work{path: path})
}

// unpack decompresses raw by bzip2 on another goroutine, and calls use with the reader of the
// result. Errors name the byte of raw at which they occurred.
func unpack(path string, raw *counter, use func(io.Reader) error) error {
	out, in := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := io.CopyBuffer(in, bzip2.NewReader(raw), make([]byte, buffered))
		if err != nil {
			err = InputError{broken(path, raw.n.Load(), "%v", err)}
		}
		in.CloseWithError(err)
	}()
	// The reader's buffer is as large as the writer's, so the writer need not wait.
	err := use(bufio.NewReaderSize(out, buffered))
	out.Close()
	<-ended
	return err
}

// counter counts the bytes that are read from r.
type counter struct {
	r *bufio.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counter) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n.Add(1)
	}
	return b, err
}

// allowance reads at most left bytes from r.
type allowance struct {
	r    *bufio.Reader
	left int
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, errLongPage
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

func (a *allowance) ReadByte() (byte, error) {
	if a.left == 0 {
		return 0, errLongPage
	}
	a.left--
	return a.r.ReadByte()
}

var errLongPage = fmt.Errorf("a page of more than %d bytes", longestPage)
