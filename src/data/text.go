package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"dynmo/src/input"
)

// invalid returns the bytes of text before the first that no text in UTF-8 has; all
// of them if there is none. A zero byte is one of these: binary files have them.
func invalid(text []byte) int {
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

// invalidBeginning is invalid of the beginning of a text, whose last character may be
// cut off.
func invalidBeginning(text []byte) int {
	at := invalid(text)
	if !utf8.FullRune(text[at:]) {
		return len(text)
	}
	return at
}

// noText returns the error of a byte of a text that is not UTF-8.
func noText(b byte) error {
	if b == 0 {
		return errors.New("0x00: a zero byte, want text in UTF-8")
	}
	return fmt.Errorf("0x%02x: the text is not UTF-8", b)
}

// looked is how much of a file shows whether it is text: hundreds of ids.
const looked = 4096

// isText reports whether a file with the name of a token file is text: it begins as
// text, which token files do not, and has no index.
func isText(path string) bool {
	if _, err := os.Lstat(megatronIndex(path)); err == nil {
		return false
	}
	f, size, err := input.Regular(path, input.Unbound)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, min(size, looked))
	n, err := io.ReadFull(f, head)
	return err == nil && n > 0 && invalidBeginning(head) == n
}
