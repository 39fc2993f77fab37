package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Nearest returns the known word with the least distance to word, the first of several. It panics
// if known is empty.
func Nearest(word string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return cmp.Compare(Distance(word, a), Distance(word, b)) })
}

// longestWord bounds the words whose distance is computed, in bytes. No key is that long, and the
// work is the product of both lengths.
const longestWord = 64

// Distance is the least number of bytes to insert, delete or replace to turn a into b (Levenshtein
// 1966). It compares the first 64 bytes of each.
func Distance(a, b string) int {
	a, b = a[:min(len(a), longestWord)], b[:min(len(b), longestWord)]
	row := make([]int, len(b)+1) // row[j]: distance of the prefixes a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Mistyped rewrites a type error of json.Unmarshal in terms of the file: the field, the value found
// and the value wanted, instead of the Go type. It returns other errors unchanged.
func Mistyped(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	var field []string
	for part := range strings.SplitSeq(wrong.Field, ".") {
		if part != "" && !unicode.IsUpper(rune(part[0])) { // embedded structs are no keys
			field = append(field, part)
		}
	}
	where := ""
	if len(field) > 0 {
		where = strings.Join(field, ".") + ": "
	}
	return fmt.Errorf("%s%s, want %s", where, wrong.Value, wantedJSON(wrong.Type))
}

// wantedJSON names the kind of JSON value for a Go type.
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
