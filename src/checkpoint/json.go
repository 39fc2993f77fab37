package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// value is a JSON value and the offset of its first byte in its file.
type value struct {
	json []byte
	at   int64
}

// fail returns an error at the value.
func (v value) fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %w", v.at, fmt.Errorf(format, args...))
}

// members calls visit for every member of an object, in order. Unlike
// json.Unmarshal it refuses a key that stands twice and invalid UTF-8. Errors
// name the offset, those of visit the key.
func (v value) members(visit func(key string, member value) error) error {
	if n := validUTF8(v.json); n < len(v.json) {
		return value{at: v.at + int64(n)}.fail("not UTF-8")
	}
	if err := json.Unmarshal(v.json, new(json.RawMessage)); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			v.at += syntax.Offset
		}
		return v.fail("%w", err)
	}
	d := json.NewDecoder(bytes.NewReader(v.json))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return v.fail("want a JSON object")
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return v.fail("%w", err)
		}
		key := token.(string)
		if seen[key] {
			return value{at: v.at + d.InputOffset()}.fail("key %.100q stands twice", key)
		}
		seen[key] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return v.fail("%w", err)
		}
		if err := visit(key, value{raw, v.at + d.InputOffset() - int64(len(raw))}); err != nil {
			return fmt.Errorf("%.100q: %w", key, err)
		}
	}
	return nil
}

// validUTF8 returns the bytes of text before the first that is not UTF-8.
func validUTF8(text []byte) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// text returns the string that v holds.
func (v value) text() (string, error) {
	var s *string
	if err := json.Unmarshal(v.json, &s); err != nil || s == nil {
		return "", v.fail("%.100s: want a string", v.json)
	}
	return *s, nil
}

// integer returns the integer in [0, 2^63) that v holds.
func (v value) integer() (int64, error) {
	u, err := strconv.ParseUint(string(v.json), 10, 63)
	if err != nil {
		return 0, v.fail("%.100s: want an integer from 0 to 2^63 - 1", v.json)
	}
	return int64(u), nil
}

// integers returns the array of integers in [0, 2^63) that v holds.
func (v value) integers() ([]int64, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(v.json, &list); err != nil || list == nil {
		return nil, v.fail("%.100s: want an array of integers", v.json)
	}
	numbers := make([]int64, len(list))
	for i, n := range list {
		var err error
		if numbers[i], err = (value{n, v.at}).integer(); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}
