package trainerlogs

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"dynmo/src/files"
)

// longest bounds what is kept of a line. Of longer ones, such as bars of progress, the middle is left out.
const longest = 1 << 20

// plain returns a reader of the text of a file: without compression by gzip, and without a byte order mark.
func plain(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("begins as a compressed file, and is none: %w", err)
		}
		in = bufio.NewReaderSize(z, 1<<20)
	}
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" {
		in.Discard(3)
	}
	return in, nil
}

// eachLine calls f with every line of a file and its number, without the end of the line. An error of f
// ends the reading; it gets the path and the number of the line.
func eachLine(path string, f func(line int, text string) error) error {
	r, err := files.Open(path, files.Unbound)
	if err != nil {
		return err
	}
	defer r.Close()
	in, err := plain(r)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var kept []byte
	for line := 1; ; {
		piece, err := in.ReadSlice('\n')
		if len(kept)+len(piece) <= longest {
			kept = append(kept, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%s: compressed, and cut off in the middle, want a whole file", path)
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("%s: %w", path, err)
		case err != nil && len(kept) == 0:
			return nil
		}
		if err := f(line, strings.TrimRight(string(kept), "\r\n")); err != nil {
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
		kept = kept[:0]
		line++
	}
}
