package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// keyed is implemented by values that read themselves from JSON. Keys returns
// values whose fields, by their tags, are the keys that they read.
type keyed interface{ Keys() []any }

// CheckKeys returns an error if text has a key that the struct in v lacks. The error names the
// nearest key of v. A repeated key is also an error. DisallowUnknownFields of encoding/json names
// no path, takes a key in other case, and lets a second key overwrite the first.
func CheckKeys(text []byte, v any) error {
	k := keys{json.NewDecoder(bytes.NewReader(text)), map[reflect.Type]map[string]reflect.Type{}}
	k.UseNumber() // a number of any size
	path, err := k.value(reflect.TypeOf(v))
	if err != nil && path != "" {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), err)
	}
	return err
}

// keys is a pass over a JSON text. Its methods return the path of the first fault; each caller
// prepends its own part of the path.
type keys struct {
	*json.Decoder
	known map[reflect.Type]map[string]reflect.Type // keys of the types seen so far
}

// value moves past a value that is read into type t. A nil t accepts any keys.
func (k *keys) value(t reflect.Type) (path string, err error) {
	begin, err := k.Token()
	switch begin {
	case json.Delim('{'):
		path, err = k.object(t)
	case json.Delim('['):
		for i := 0; k.More(); i++ {
			if path, err := k.value(element(t)); err != nil {
				return fmt.Sprintf("[%d]%s", i, path), err
			}
		}
	default:
		return "", err
	}
	if err == nil {
		_, err = k.Token() // the end
	}
	return path, err
}

// object moves past the members of an object.
func (k *keys) object(t reflect.Type) (path string, err error) {
	known, met := k.known[t]
	if !met {
		known = fields(t)
		k.known[t] = known
	}
	seen := map[string]bool{}
	for k.More() {
		token, err := k.Token()
		if err != nil {
			return "", err
		}
		key := token.(string)
		t, ok := known[key]
		switch {
		case seen[key]:
			return "." + Visible(key), errors.New("stands twice")
		case known != nil && !ok:
			return "." + Visible(key), fmt.Errorf("unknown key; the nearest is %s", Nearest(key, slices.Sorted(maps.Keys(known))))
		}
		seen[key] = true
		if path, err := k.value(t); err != nil {
			return "." + Visible(key) + path, err
		}
	}
	return "", nil
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
