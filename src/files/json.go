package files

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is a JSON value and the offset of its first byte in its file.
type Value struct {
	JSON []byte
	At   int64
}

// String returns the value on one line, for errors.
func (v Value) String() string {
	var b bytes.Buffer
	if err := json.Compact(&b, v.JSON); err != nil {
		return string(v.JSON)
	}
	return b.String()
}

// Fail returns an error with the offset of the value.
func (v Value) Fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %w", v.At, fmt.Errorf(format, args...))
}

// Members calls visit for every member of an object, in order. Unlike json.Unmarshal it returns an
// error for repeated keys and for invalid UTF-8. Errors name the offset; errors of visit also name
// the key.
func (v Value) Members(visit func(key string, member Value) error) error {
	if n := validUTF8(v.JSON); n < len(v.JSON) {
		return Value{At: v.At + int64(n)}.Fail("not UTF-8")
	}
	if err := json.Unmarshal(v.JSON, new(json.RawMessage)); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			v.At += syntax.Offset
		}
		return v.Fail("%w", err)
	}
	d := json.NewDecoder(bytes.NewReader(v.JSON))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return v.Fail("want a JSON object")
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return v.Fail("%w", err)
		}
		key := token.(string)
		if seen[key] {
			return Value{At: v.At + d.InputOffset()}.Fail("key %.100q stands twice", key)
		}
		seen[key] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return v.Fail("%w", err)
		}
		if err := visit(key, Value{raw, v.At + d.InputOffset() - int64(len(raw))}); err != nil {
			return fmt.Errorf("%.100q: %w", key, err)
		}
	}
	return nil
}

// validUTF8 returns the number of bytes before the first byte of text that is not UTF-8.
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

// Text returns the value as a string; another type is an error.
func (v Value) Text() (string, error) {
	var s *string
	if err := json.Unmarshal(v.JSON, &s); err != nil || s == nil {
		return "", v.Fail("%.100s: want a string", v)
	}
	return *s, nil
}

// Integer returns the value as an integer in [0, 2^63).
func (v Value) Integer() (int64, error) {
	u, err := strconv.ParseUint(string(v.JSON), 10, 63)
	if err != nil {
		return 0, v.Fail("%.100s: want an integer from 0 to 2^63 - 1", v)
	}
	return int64(u), nil
}

// Integers returns the value as an array of integers in [0, 2^63).
func (v Value) Integers() ([]int64, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(v.JSON, &list); err != nil || list == nil {
		return nil, v.Fail("%.100s: want an array of integers", v)
	}
	numbers := make([]int64, len(list))
	for i, n := range list {
		var err error
		if numbers[i], err = (Value{n, v.At}).Integer(); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// Object is the members of a JSON object.
type Object map[string]Value

// Object returns the members of an object.
func (v Value) Object() (Object, error) {
	o := make(Object)
	err := v.Members(func(key string, v Value) error {
		o[key] = v
		return nil
	})
	return o, err
}

// Fail returns an error that names a member. If the member is missing, the error is about its default.
func (o Object) Fail(key, format string, args ...any) error {
	if _, ok := o[key]; !ok {
		return fmt.Errorf("%s is missing, and its default does not fit: %s: add it with the model's value", key, fmt.Sprintf(format, args...))
	}
	return fmt.Errorf("%s: %w", Visible(key), o[key].Fail(format, args...))
}

// Absent reports whether a key is missing or null.
func (o Object) Absent(key string) bool {
	v, ok := o[key]
	return !ok || string(v.JSON) == "null"
}

// Dimension is an integer member of a configuration and the variable that it sets.
type Dimension struct {
	Key   string
	To    *int
	Limit int64
}

// Dimensions sets the variables whose members are present. Each value must be in [1, Limit].
func (o Object) Dimensions(list ...Dimension) error {
	for _, d := range list {
		v, ok := o[d.Key]
		if !ok {
			continue
		}
		n, err := v.Integer()
		if err != nil || n < 1 || n > d.Limit {
			return o.Fail(d.Key, "%.100s: want an integer from 1 to %d", v, d.Limit)
		}
		*d.To = int(n)
	}
	return nil
}

// Number sets a number in [least, most] if the key is present.
func (o Object) Number(key string, to *float64, least, most float64) error {
	v, ok := o[key]
	if !ok {
		return nil
	}
	x, err := strconv.ParseFloat(string(v.JSON), 64)
	if err != nil || !(x >= least && x <= most) {
		return o.Fail(key, "%.100s: want a number from %g to %g", v, least, most)
	}
	*to = x
	return nil
}

// Flag sets a boolean if the key is present.
func (o Object) Flag(key string, to *bool) error {
	v, ok := o[key]
	if !ok {
		return nil
	}
	*to = string(v.JSON) == "true"
	if !*to && string(v.JSON) != "false" {
		return o.Fail(key, "%.100s: want true or false", v)
	}
	return nil
}

// Required sets a number; a missing key is an error.
func (o Object) Required(key string, to *float64, least, most float64) error {
	return cmp.Or(o.There(key), o.Number(key, to, least, most))
}

// There returns an error if a key is missing.
func (o Object) There(key string) error {
	if _, ok := o[key]; !ok {
		return fmt.Errorf("%s is missing", key)
	}
	return nil
}

// Only returns an error if the key is present with a value other than those in want. want has
// values as JSON decodes them.
func (o Object) Only(key string, want ...any) error {
	v, ok := o[key]
	if !ok {
		return nil
	}
	var got any
	err := json.Unmarshal(v.JSON, &got)
	if err != nil || !slices.ContainsFunc(want, func(want any) bool { return reflect.DeepEqual(got, want) }) {
		return o.Fail(key, "%.100s is not supported, want %s", v, named(want))
	}
	return nil
}

// named formats values for an error. A missing member is right where null is.
func named(list []any) string {
	var names []string
	for _, v := range list {
		text, isText := v.(string)
		if !isText {
			source, err := json.Marshal(v)
			if err != nil {
				panic("input: a value that JSON does not have")
			}
			text = string(source)
		}
		names = append(names, text)
	}
	text := strings.Join(names, " or ")
	if slices.Contains(list, nil) {
		text += " (or take it out)"
	}
	return text
}
