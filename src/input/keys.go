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

// CheckKeys refuses a key in text, which is valid JSON, that the struct in v does not have. The
// error has the nearest key that v has. It also refuses a key that stands twice. encoding/json
// would ignore an unknown key, and let a second one overwrite the first.
func CheckKeys(text []byte, v any) error {
	k := keys{text: text, known: map[reflect.Type]map[string]reflect.Type{}}
	if path, problem := k.value(reflect.TypeOf(v)); problem != "" {
		return fmt.Errorf("%s: %s", strings.TrimPrefix(path, "."), problem)
	}
	return nil
}

// keys goes through a valid JSON text. Its methods return the place and the
// nature of the first problem; the place grows towards the whole.
type keys struct {
	text  []byte
	at    int
	known map[reflect.Type]map[string]reflect.Type // fields of the types that were met
}

// value goes behind a value that is read into t; nil takes any keys.
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

// next moves behind a bracket, comma or colon and the space around it. It reports whether something
// follows before the end of the array or object. If nothing follows it moves behind that end.
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

// word goes behind a string and returns it.
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

// element returns the type of the elements that a value of type t has.
func element(t reflect.Type) reflect.Type {
	if t = direct(t); t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		return t.Elem()
	}
	return nil
}

// direct returns the type that pointers point to in the end.
func direct(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fields returns the types of the keys that are read into a value of type t, nil
// if that takes any.
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
