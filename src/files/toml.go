package files

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Node is a value of a TOML text.
type Node struct {
	md        *toml.MetaData
	primitive toml.Primitive
}

// ParseTOML returns the tables and keys at the top of a TOML text, and the number of all keys. name
// is the name of the text in errors, which have a line.
func ParseTOML(name string, text []byte) (root map[string]Node, keys int, err error) {
	if err := CheckDepth(name, text); err != nil {
		return nil, 0, err
	}
	var top map[string]toml.Primitive
	md, err := toml.Decode(string(text), &top)
	if err != nil {
		err = tomlError(name, err)
	}
	return nodes(&md, top), len(md.Keys()), err
}

func nodes(md *toml.MetaData, table map[string]toml.Primitive) map[string]Node {
	list := make(map[string]Node)
	for key, p := range table {
		list[key] = Node{md, p}
	}
	return list
}

// Value returns the value in the decoder's Go type.
func (n Node) Value() (value any) {
	_ = n.md.PrimitiveDecode(n.primitive, &value) // any value fits an empty interface
	return value
}

// Keys returns the values in a table, none of anything else.
func (n Node) Keys() map[string]Node {
	if _, isTable := n.Value().(map[string]any); !isTable {
		return nil
	}
	var keys map[string]toml.Primitive
	_ = n.md.PrimitiveDecode(n.primitive, &keys) // any table fits a map of primitives
	return nodes(n.md, keys)
}

// items returns the values in a list.
func (n Node) items() (list []Node) {
	var items []toml.Primitive
	_ = n.md.PrimitiveDecode(n.primitive, &items) // any list fits a slice of primitives
	for _, p := range items {
		list = append(list, Node{n.md, p})
	}
	return list
}

// locator is a value that refuses to be decoded: the decoder reports lines of a file only in
// errors.
type locator struct{}

var errLocate = errors.New("located")

// UnmarshalTOML always fails.
func (*locator) UnmarshalTOML(any) error { return errLocate }

// Line returns the line of a value. If a table has no line of its own, Line returns that of its
// first key. It takes time proportional to the length of the text.
func (n Node) Line() int {
	located, _ := errors.AsType[toml.ParseError](n.md.PrimitiveDecode(n.primitive, &locator{}))
	if located.Position.Line > 0 {
		return located.Position.Line
	}
	first := 0
	for _, k := range n.Keys() {
		if line := k.Line(); first == 0 || line < first {
			first = line
		}
	}
	return first
}

// TOML reads a TOML text into the struct that to points to. A key has exactly the name in the tag
// of its field; without a tag the name is that of the field in lower case. Other keys are errors,
// also in another case. The decoder would take a key in any case, and a second spelling would win.
// An error names file, line and key, and the nearest key or the wanted type.
func TOML(name string, text []byte, to any) error {
	root, _, err := ParseTOML(name, text)
	if err == nil {
		err = checkTable(name, "", root, reflect.TypeOf(to).Elem())
	}
	if err == nil {
		if _, err = toml.Decode(string(text), to); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// checkTable checks the keys of a table against a struct or a map. path ends in a dot, or is "".
func checkTable(name, path string, table map[string]Node, t reflect.Type) error {
	known := tomlFields(t)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		n, of := table[key], t
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else if of = known[key]; of == nil {
			nearest := Nearest(strings.ToLower(key), slices.Sorted(maps.Keys(known)))
			return fmt.Errorf("%s:%d: %s%s: unknown key; the nearest is %s%s", name, n.Line(), path, Visible(key), path, nearest)
		}
		if err := checkValue(name, path+key, n, direct(of)); err != nil {
			return err
		}
	}
	return nil
}

// tomlFields returns the types of a struct's fields by their keys.
func tomlFields(t reflect.Type) map[string]reflect.Type {
	known := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for field := range t.Fields() {
			if tag, _, _ := strings.Cut(field.Tag.Get("toml"), ","); field.IsExported() {
				known[cmp.Or(tag, strings.ToLower(field.Name))] = field.Type
			}
		}
	}
	return known
}

// checkValue checks a value against a type.
func checkValue(name, path string, n Node, t reflect.Type) error {
	value := n.Value()
	ok, wanted := true, ""
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		if _, ok = value.(map[string]any); ok {
			return checkTable(name, path+".", n.Keys(), t)
		}
		wanted = "a table"
	case reflect.Slice:
		list := reflect.ValueOf(value)
		if ok = list.Kind() == reflect.Slice; ok && direct(t.Elem()).Kind() != reflect.Interface {
			for i, item := range n.items() {
				if err := checkValue(name, fmt.Sprintf("%s[%d]", path, i), item, direct(t.Elem())); err != nil {
					return err
				}
			}
		}
		wanted = "a list"
	case reflect.String:
		_, ok = value.(string)
		wanted = "a text"
	case reflect.Bool:
		_, ok = value.(bool)
		wanted = "true or false"
	case reflect.Int, reflect.Int64:
		_, ok = value.(int64)
		wanted = "a whole number"
	case reflect.Float64:
		whole, isWhole := value.(int64)
		_, ok = value.(float64)
		ok = ok || isWhole && math.Abs(float64(whole)) < 1<<53 // the decoder refuses others
		wanted = "a number"
	}
	if !ok {
		return fmt.Errorf("%s:%d: %s: %#v, wanted %s", name, n.Line(), path, value, wanted)
	}
	return nil
}

// tomlError returns the decoder's error about a TOML text, with its line. name is the name of the
// text. The error of a number that is too large names the number's key.
func tomlError(name string, err error) error {
	syntax, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	message := syntax.Message
	if number, size, large := strings.Cut(message, " is out of range for "); large {
		most := "a number of at most 1.7e308"
		if size == "int64" {
			most = "a whole number below 2^63"
		}
		message = fmt.Sprintf("%s: %.40s is too large: want %s", syntax.LastKey, number, most)
	}
	return fmt.Errorf("%s:%d: %s", name, syntax.Position.Line, message)
}
