package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// longestLine bounds a line of a file of lines, in bytes: one of a run on a
// thousand ranks is far shorter.
const longestLine = 16 << 20

// Lines reads a file of one JSON value a line. name is what errors call it. A
// last line that is no JSON is torn, as a killed run, a full disk or a crash of
// the machine (which leaves NULs) leaves it: the note says so, and the values
// before it count. Any other line that is wrong is an error.
func Lines[T any](name string, r io.Reader) (list []T, note string, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, longestLine)
	var torn error
	for n := 1; in.Scan(); n++ {
		if torn != nil {
			return nil, "", torn
		}
		var v T
		err := json.Unmarshal(in.Bytes(), &v)
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
			torn = fmt.Errorf("%s:%d: %w", name, n, err)
			note = Torn(name, n)
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s:%d: %w", name, n, err)
		}
		list = append(list, v)
	}
	if err := in.Err(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	return list, note, nil
}

// Torn is the note that the last line of a file was left out.
func Torn(name string, line int) string {
	return fmt.Sprintf("%s:%d: the last line is torn and left out", name, line)
}

// Whole returns a text of one JSON value a line without its last line if that is
// torn (see Lines), of which the note says so. A text whose first line is not a
// value by itself, as one that people wrote, comes back as it is.
func Whole(name string, text []byte) (whole []byte, note string) {
	end := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1 // of the line before the last
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if end == 0 || !json.Valid(first) || json.Valid(text[end:]) {
		return text, ""
	}
	return text[:end], Torn(name, 1+bytes.Count(text[:end], []byte("\n")))
}
