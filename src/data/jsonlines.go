package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/parquet-go/jsonlite"
)

// longestLine bounds a line of JSON lines, in bytes.
const longestLine = 1 << 30

// readLines reads JSON lines: a document for each line. Empty lines are left out.
func (d *Documents) readLines(in *bufio.Reader, keys []string) {
	record := int64(0)
	var line []byte
	d.next = func() (Document, error) {
		for {
			var err error
			if line, err = readLine(in, line[:0]); err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
				if !errors.Is(err, io.EOF) {
					err = fmt.Errorf("line %d: %w", record+1, err)
				}
				return Document{}, err
			}
			record++
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			text, err := textOf(string(line), keys)
			if err != nil {
				return Document{}, fmt.Errorf("line %d: %w", record, err)
			}
			return Document{Text: strings.NewReader(text), Record: record}, nil
		}
	}
}

// readLine appends the next line to dst.
func readLine(in *bufio.Reader, dst []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		dst = append(dst, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return dst, err
		}
		if len(dst) > longestLine {
			return dst, fmt.Errorf("more than %d bytes, want a JSON object in each line", longestLine)
		}
	}
}

// textOf returns the members of a line that have the text.
func textOf(line string, keys []string) (string, error) {
	texts, err := members(line, keys)
	if err != nil {
		return "", err
	}
	var b []string
	for k, text := range texts {
		if text == nil {
			return "", missingKey(keys[k], memberNames(line))
		}
		if *text != nullText {
			b = append(b, *text)
		}
	}
	return strings.Join(b, "\n"), nil
}

// nullText stands for null, which no text can be: it has a zero byte.
const nullText = "\x00null"

// members returns the texts of an object's members, nil for those that it does not have.
func members(line string, keys []string) ([]*string, error) {
	if at := Invalid([]byte(line)); at < len(line) {
		return nil, fmt.Errorf("byte %d: %w", at, NoText(line[at]))
	}
	it := jsonlite.Iterate(line)
	if !it.Next() || it.Kind() != jsonlite.Object {
		return nil, errors.Join(errors.New("no JSON object"), it.Err())
	}
	texts := make([]*string, len(keys))
	for key, err := range it.Object {
		if err != nil {
			return nil, fmt.Errorf("no JSON object: %w", err)
		}
		k := slices.Index(keys, key)
		if k < 0 {
			continue
		}
		text := nullText
		if it.Kind() != jsonlite.Null {
			if it.Kind() != jsonlite.String {
				return nil, fmt.Errorf("member %q: %v, want a string", key, it.Kind())
			}
			if text, err = it.String(); err != nil {
				return nil, fmt.Errorf("member %q: %w", key, err)
			}
		}
		texts[k] = &text
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("no JSON object: %w", err)
	}
	if it.Next() {
		return nil, errors.New("more than one JSON value, want an object in each line")
	}
	return texts, nil
}

// memberNames returns the names of an object's members.
func memberNames(line string) []string {
	it := jsonlite.Iterate(line)
	it.Next()
	var names []string
	for key := range it.Object {
		names = append(names, key)
	}
	slices.Sort(names)
	return names
}

// missingKey returns the error of a record without a key.
func missingKey(key string, have []string) error {
	if len(have) > 20 {
		have = append(have[:20], "…")
	}
	return fmt.Errorf("no member %q: it has %.500s (json_key names the one with the text)", key, strings.Join(have, ", "))
}
