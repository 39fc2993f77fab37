package files

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// mostLine bounds a line of records in bytes. It is far above any real line.
const mostLine = 256 << 20

// lines is an open file with one JSON value for each line, or the begin of one.
type lines struct {
	io.Reader
	io.Closer
}

// Records opens a file with one JSON value for each line; the values may be in an array. A file of a
// disk has any length, and standard input at most piped bytes. A torn last line is left out, and the
// note says so. A line is torn if it is not JSON: a killed run or a full disk tears it, and a crash of
// the machine may leave NULs. A file whose first line is no complete value, as one written by hand,
// is returned whole.
func Records(path string) (r io.ReadCloser, note string, err error) {
	if isPiped(path) {
		text, err := Read(path, piped)
		if err != nil {
			return nil, "", err
		}
		end, note := wholeLines(path, bytes.NewReader(text), int64(len(text)))
		return io.NopCloser(bytes.NewReader(text[:end])), note, nil
	}
	f, size, err := Regular(path, Unbound)
	if err != nil {
		return nil, "", err
	}
	end, note := wholeLines(path, f, size)
	return lines{io.NewSectionReader(f, 0, end), f}, note, nil
}

// wholeLines returns the length of a text without a torn last line, and the note on it. See Records.
func wholeLines(name string, text io.ReaderAt, size int64) (end int64, note string) {
	begin := lastLine(text, size)
	if begin < 0 {
		return size, ""
	}
	first, err := NextLine(bufio.NewReader(io.NewSectionReader(text, 0, size)))
	if begin > 0 && (err != nil || !isLine(first)) {
		return size, ""
	}
	last := make([]byte, size-begin)
	if _, err := text.ReadAt(last, begin); err != nil && !errors.Is(err, io.EOF) || isLine(last) {
		return size, "" // the reader reports the error
	}
	before := &newlines{}
	_, _ = io.Copy(before, io.NewSectionReader(text, 0, begin))
	return begin, fmt.Sprintf("%s:%d: the last line is torn and left out", name, before.n+1)
}

// lastLine returns where the last line of a text begins; -1 if the line is longer than mostLine.
func lastLine(text io.ReaderAt, size int64) int64 {
	chunk := make([]byte, 64<<10)
	for end := size - 1; end > 0; { // a newline at the end ends the last line
		n := min(end, int64(len(chunk)))
		if _, err := text.ReadAt(chunk[:n], end-n); err != nil {
			return -1
		}
		if at := bytes.LastIndexByte(chunk[:n], '\n'); at >= 0 {
			return end - n + int64(at) + 1
		}
		if end -= n; size-end > mostLine {
			return -1
		}
	}
	return 0
}

// newlines counts the newlines that are written to it.
type newlines struct{ n int }

func (c *newlines) Write(p []byte) (int, error) {
	c.n += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// NextLine reads the next line with its newline, which the last line of a file may lack. Of a line
// longer than 256 MiB it returns a begin, which is no JSON. The error is io.EOF after the last line.
func NextLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line) <= mostLine {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		}
		return line, err
	}
}

// Lines reads a file with one JSON value for each line. A torn last line is left out, and the note
// says so (see Records). Any other wrong line is an error with its number.
func Lines[T any](path string) (list []T, note string, err error) {
	r, note, err := Records(path)
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	for in := bufio.NewReaderSize(r, 1<<20); ; {
		line, err := NextLine(in)
		if errors.Is(err, io.EOF) {
			return list, note, nil
		}
		var v T
		if err == nil {
			err = Mistyped(json.Unmarshal(line, &v))
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s:%d: %w", path, len(list)+1, err)
		}
		list = append(list, v)
	}
}

// isLine reports whether a line is a JSON value, or a bracket of an array with one value for each
// line.
func isLine(line []byte) bool {
	line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
	return len(line) == 0 || string(line) == "[" || string(line) == "]" || json.Valid(line)
}
