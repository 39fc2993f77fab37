package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"dynmo/src/files"
)

// Invalid returns the number of bytes before the first byte of text that is invalid; all bytes if
// none is. A byte is invalid if it is zero, which binary files have, or not UTF-8.
func Invalid(text []byte) int {
	end := len(text)
	if zero := bytes.IndexByte(text, 0); zero >= 0 {
		end = zero
	}
	if utf8.Valid(text[:end]) {
		return end
	}
	for at := 0; at < end; {
		r, size := utf8.DecodeRune(text[at:end])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return end
}

// invalidBeginning is Invalid for the begin of a text, whose last character may be incomplete.
func invalidBeginning(text []byte) int {
	at := Invalid(text)
	if !utf8.FullRune(text[at:]) {
		return len(text)
	}
	return at
}

// NoText returns the error of a byte that text in UTF-8 cannot have.
func NoText(b byte) error {
	if b == 0 {
		return errors.New("0x00: a zero byte, want text in UTF-8")
	}
	return fmt.Errorf("0x%02x: the text is not UTF-8", b)
}

// looked is the number of bytes that show whether a file is text: hundreds of ids.
const looked = 4096

// isText reports whether a file with the name of a token file is text. It is text if it has no
// index and begins as valid text, which token files do not.
func isText(path string) bool {
	if _, err := os.Lstat(megatronIndex(path)); err == nil {
		return false
	}
	f, size, err := files.Regular(path, files.Unbound)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, min(size, looked))
	n, err := io.ReadFull(f, head)
	return err == nil && n > 0 && invalidBeginning(head) == n
}

// IsTokens reports whether Open reads a path as token files. If nothing is there any more, the name
// decides.
func IsTokens(path string) bool {
	list, err := List(path, nil, 0)
	if err != nil {
		return isTokenFile(path)
	}
	return slices.ContainsFunc(list, File.hasTokens)
}
