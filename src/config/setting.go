package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"dynmo/src/files"
)

// setting is one field of a Config: its name, value and tags.
type setting struct {
	table, key string
	value      reflect.Value     // the field itself; settable
	tag        reflect.StructTag // tags of the field
	tableTag   reflect.StructTag // tags of the table
}

// newSetting returns the setting of a field. It fills in the names of the registered families and
// kinds of dynamism.
func newSetting(table string, tableTag reflect.StructTag, field reflect.StructField, value reflect.Value) setting {
	tag := reflect.StructTag(familyTag(strings.Replace(string(field.Tag), `oneof:"kinds"`, `oneof:"`+kindNames+`"`, 1)))
	return setting{table, field.Tag.Get("toml"), value, tag, tableTag}
}

// find returns the setting with a name, table.key, or with that former name.
func find(list []setting, name string) (setting, bool) {
	i := slices.IndexFunc(list, func(s setting) bool {
		former, renamed := s.tag.Lookup("was")
		return s.name() == name || renamed && former == name
	})
	if i < 0 {
		return setting{}, false
	}
	return list[i], true
}

func (s setting) name() string { return s.table + "." + s.key }

// parse converts text in the form of --set and of the default tag to a TOML value. Strings need no
// quotes, and lists may be words between commas. Text that is no value is returned as a string.
func (s setting) parse(text string) any {
	switch kind := s.value.Kind(); {
	case kind == reflect.String && !strings.HasPrefix(text, `"`):
		return text
	case kind == reflect.Slice && !strings.HasPrefix(text, "["):
		list := []any{}
		for word := range strings.SplitSeq(text, ",") {
			if word != "" {
				list = append(list, word)
			}
		}
		return list
	}
	var got map[string]any
	source := "value = " + text
	if files.CheckDepth("", []byte(source)) != nil {
		return text
	}
	if _, err := toml.Decode(source, &got); err != nil || len(got) != 1 {
		return text
	}
	return got["value"]
}

// assign sets the field to a value from the TOML decoder, and reports whether the type is right.
// Integers are accepted for numbers, and for texts that may be integers.
func (s setting) assign(value any) bool {
	switch s.value.Kind() {
	case reflect.Bool:
		b, ok := value.(bool)
		s.value.SetBool(b)
		return ok
	case reflect.Int, reflect.Int64:
		n, ok := value.(int64)
		if !ok || s.value.OverflowInt(n) {
			return false
		}
		s.value.SetInt(n)
	case reflect.Uint64:
		n, ok := value.(int64)
		if !ok || n < 0 {
			return false
		}
		s.value.SetUint(uint64(n))
	case reflect.Float64:
		switch n := value.(type) {
		case float64:
			s.value.SetFloat(n)
		case int64:
			s.value.SetFloat(float64(n))
		default:
			return false
		}
	case reflect.String:
		if n, ok := value.(int64); ok && (s.integers() || s.numbers()) {
			value = strconv.FormatInt(n, 10)
		}
		if n, ok := value.(float64); ok && s.numbers() {
			value = strconv.FormatFloat(n, 'g', -1, 64)
		}
		text, ok := value.(string)
		if n, ok := number(text); ok && s.numbers() {
			text = strconv.FormatFloat(n, 'g', -1, 64)
		}
		s.value.SetString(text)
		return ok
	case reflect.Slice:
		words, ok := value.([]any)
		list := []string(nil) // an empty list is nil, so that equal settings are deeply equal
		for _, w := range words {
			word, isText := w.(string)
			ok = ok && isText
			list = append(list, word)
		}
		s.value.Set(reflect.ValueOf(list))
		return ok
	}
	return true
}

// integers reports whether a text setting may be an integer.
func (s setting) integers() bool {
	_, bounded := s.tag.Lookup("min")
	return bounded && s.value.Kind() == reflect.String && !s.numbers()
}

// numbers reports whether a text setting may be a number.
func (s setting) numbers() bool {
	_, bounded := s.tag.Lookup("above")
	return (bounded || s.tag.Get("real") == "true") && s.value.Kind() == reflect.String
}

// number returns the number in a text, if the text begins like a number. File names that look like
// a number need a "./" before them.
func number(text string) (x float64, ok bool) {
	if text == "" || !strings.ContainsRune("+-.0123456789", rune(text[0])) {
		return 0, false
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil
}

// valid reports whether the tags allow the field's value.
func (s setting) valid() bool {
	switch s.value.Kind() {
	case reflect.Float64:
		if x := s.value.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	case reflect.Slice:
		return !slices.ContainsFunc(s.value.Interface().([]string), func(t string) bool { return !utf8.ValidString(t) })
	case reflect.String:
		choices, closed := s.tag.Lookup("oneof")
		x, isNumber := number(s.value.String())
		switch {
		case isNumber && s.numbers():
			return s.within(reflect.ValueOf(x))
		case !closed:
			return utf8.ValidString(s.value.String())
		case s.chosen(strings.Split(choices, ",")):
			return true
		}
		n, err := strconv.Atoi(s.value.String())
		return s.integers() && err == nil && strconv.Itoa(n) == s.value.String() && s.within(reflect.ValueOf(n))
	}
	return s.within(s.value)
}

// words returns the texts that are joined in the field's value, or the value itself if it is not a
// joined one.
func (s setting) words() []string {
	if joined, ok := s.tag.Lookup("joined"); ok {
		return strings.Split(s.value.String(), joined)
	}
	return []string{s.value.String()}
}

// chosen reports whether the field's value is one of the choices, or joins several. A joined value
// has each choice at most once, and not the first choice, which stands for none.
func (s setting) chosen(choices []string) bool {
	words := s.words()
	for i, w := range words {
		at := slices.Index(choices, w)
		if at < 0 || at == 0 && len(words) > 1 || slices.Contains(words[:i], w) {
			return false
		}
	}
	return true
}

// within reports whether a number is within the bounds in the tags.
func (s setting) within(number reflect.Value) bool {
	for bound, wrong := range map[string][]int{"min": {-1}, "max": {1}, "above": {-1, 0}, "below": {0, 1}} {
		if text, ok := s.tag.Lookup(bound); ok && slices.Contains(wrong, compare(number, text)) {
			return false
		}
	}
	return true
}

// compare compares a number exactly with a bound from a tag.
func compare(number reflect.Value, bound string) int {
	b := reflect.New(number.Type()).Elem()
	if _, err := fmt.Sscan(bound, b.Addr().Interface()); err != nil {
		panic("config: a tag's bound is not a number")
	}
	switch {
	case b.CanUint():
		return cmp.Compare(number.Uint(), b.Uint())
	case b.CanFloat():
		return cmp.Compare(number.Float(), b.Float())
	}
	return cmp.Compare(number.Int(), b.Int())
}

// wanted describes the values that the tags allow.
func (s setting) wanted() string {
	var values []string
	if choices, ok := s.tag.Lookup("oneof"); ok {
		for c := range strings.SplitSeq(choices, ",") {
			values = append(values, strconv.Quote(c))
		}
	}
	switch s.value.Kind() {
	case reflect.Bool:
		values = []string{"true", "false"}
	case reflect.Float64:
		values = []string{"a number"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		values = []string{"an integer"}
	case reflect.Slice:
		values = []string{"a list of UTF-8 texts"}
	default:
		if s.integers() {
			values = append(values, "an integer")
		} else if len(values) == 0 {
			values = []string{"a UTF-8 text"}
		}
		if s.numbers() {
			values = append(values, "a number")
		}
	}
	var bounds []string
	for _, b := range []struct{ tag, words string }{
		{"min", "at least "}, {"above", "above "}, {"max", "at most "}, {"below", "below "},
	} {
		if text, ok := s.tag.Lookup(b.tag); ok {
			bounds = append(bounds, b.words+text)
		}
	}
	last := len(values) - 1
	if joined, ok := s.tag.Lookup("joined"); ok {
		values[last] += fmt.Sprintf(", or several of the others with %s between them", joined)
		values = []string{strings.Join(values, ", ")}
		last = 0
	}
	text := values[last]
	if last > 0 {
		text = strings.Join(values[:last], ", ") + " or " + text
	}
	if len(bounds) > 0 {
		text += " " + strings.Join(bounds, " and ")
	}
	return text
}

// nearest names the choice that a mistyped word of the field's value resembles: at most half of the
// word's letters differ. It returns "" if there is none.
func (s setting) nearest() string {
	choices, closed := s.tag.Lookup("oneof")
	if !closed {
		return ""
	}
	list := strings.Split(choices, ",")
	for _, w := range s.words() {
		if choice := files.Nearest(w, list); !slices.Contains(list, w) && 2*files.Distance(w, choice) <= len(w) {
			return fmt.Sprintf("; the nearest is %q", choice)
		}
	}
	return ""
}

// text returns the field's value in TOML.
func (s setting) text() string {
	if _, err := strconv.Atoi(s.value.String()); err == nil && s.integers() {
		return s.value.String()
	}
	if _, ok := number(s.value.String()); ok && s.numbers() {
		return s.value.String()
	}
	return literal(s.value.Interface())
}

// literal returns a value in TOML; "a table" for a table.
func literal(value any) string {
	switch v := value.(type) {
	case map[string]any, []map[string]any:
		return "a table"
	case []string:
		if v == nil {
			value = []string{} // TOML has no null
		}
	}
	line, err := toml.Marshal(map[string]any{"value": value})
	if err != nil {
		return strconv.Quote(err.Error())
	}
	return strings.TrimSpace(strings.TrimPrefix(string(line), "value ="))
}
