package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// keyed is implemented by values that read themselves from JSON. Keys returns
// values whose fields, by their tags, are the keys that they read.
type keyed interface{ Keys() []any }

// CheckKeys returns an error if text, which is valid JSON, has a key that the struct in v lacks.
// The error names the nearest key of v. A repeated key is also an error. encoding/json would ignore
// an unknown key, and let a second key overwrite the first.
func CheckKeys(text []byte, v any) error {
	k := keys{text: text, known: map[reflect.Type]map[string]reflect.Type{}}
	if path, problem := k.value(reflect.TypeOf(v)); problem != "" {
		return fmt.Errorf("%s: %s", strings.TrimPrefix(path, "."), problem)
	}
	return nil
}

// keys is a pass over a valid JSON text. Its methods return the path and the description of the
// first problem; each caller prepends its own part of the path.
type keys struct {
	text  []byte
	at    int
	known map[reflect.Type]map[string]reflect.Type // keys of the types seen so far
}

// value moves past a value that is read into type t. A nil t accepts any keys.
func (k *keys) value(t reflect.Type) (path, problem string) {
	k.space()
	switch k.text[k.at] {
	case '{':
		return k.object(t)
	case '[':
		for i := 0; k.next(']'); i++ {
			if path, problem := k.value(element(t)); problem != "" {
				return fmt.Sprintf("[%d]%s", i, path), problem
			}
		}
	case '"':
		k.word()
	default: // a number, true, false or null
		if n := bytes.IndexAny(k.text[k.at:], " \t\r\n,]}"); n >= 0 {
			k.at += n
		} else {
			k.at = len(k.text)
		}
	}
	return "", ""
}

func (k *keys) object(t reflect.Type) (path, problem string) {
	known, met := k.known[t]
	if !met {
		known = fields(t)
		k.known[t] = known
	}
	seen := map[string]bool{}
	for k.next('}') {
		key := k.word()
		t, ok := known[key]
		switch {
		case seen[key]:
			return "." + key, "stands twice"
		case known != nil && !ok:
			return "." + key, "unknown key; the nearest is " + Nearest(key, slices.Sorted(maps.Keys(known)))
		}
		seen[key] = true
		k.next(0) // the colon
		if path, problem := k.value(t); problem != "" {
			return "." + key + path, problem
		}
	}
	return "", ""
}

// next moves past a bracket, comma or colon and the space around it. It reports whether another
// element follows before the end of the array or object. If none follows it moves past that end.
func (k *keys) next(end byte) bool {
	k.space()
	if k.text[k.at] == end {
		k.at++
		return false
	}
	k.at++
	k.space()
	if k.text[k.at] == end { // it is empty
		k.at++
		return false
	}
	return true
}

func (k *keys) space() {
	for k.at < len(k.text) && strings.IndexByte(" \t\r\n", k.text[k.at]) >= 0 {
		k.at++
	}
}

// word moves past a string and returns it.
func (k *keys) word() (word string) {
	begin, escaped := k.at, false
	for k.at++; k.text[k.at] != '"'; k.at++ {
		if k.text[k.at] == '\\' {
			escaped = true
			k.at++
		}
	}
	k.at++
	if !escaped {
		return string(k.text[begin+1 : k.at-1])
	}
	_ = json.Unmarshal(k.text[begin:k.at], &word) // the text is valid
	return word
}

// element returns the element type of a value of type t.
func element(t reflect.Type) reflect.Type {
	if t = direct(t); t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		return t.Elem()
	}
	return nil
}

// direct returns the type behind all pointers.
func direct(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fields returns the types of the keys of a value of type t, nil if it accepts any keys.
func fields(t reflect.Type) map[string]reflect.Type {
	t = direct(t)
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	known := map[string]reflect.Type{}
	if keyed, ok := reflect.Zero(t).Interface().(keyed); ok {
		for _, v := range keyed.Keys() {
			maps.Copy(known, fields(reflect.TypeOf(v)))
		}
		return known
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			known[name] = f.Type
		}
	}
	return known
}
