package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// Mistyped says an error of json.Unmarshal in words of the file: the field, what stands
// there and what is wanted, and not the Go type that it was to go into. Other errors come
// back as they are.
func Mistyped(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	var field []string
	for part := range strings.SplitSeq(wrong.Field, ".") {
		if part != "" && !unicode.IsUpper(rune(part[0])) { // embedded structs have no key
			field = append(field, part)
		}
	}
	where := ""
	if len(field) > 0 {
		where = strings.Join(field, ".") + ": "
	}
	return fmt.Errorf("%s%s, want %s", where, wrong.Value, wantedJSON(wrong.Type))
}

// wantedJSON names the JSON value that a Go type is read from.
func wantedJSON(t reflect.Type) string {
	switch t = direct(t); t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number in range"
}
