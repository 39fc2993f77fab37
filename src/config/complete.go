package config

import (
	"reflect"
	"strings"
)

// Completion is a possible completion of a word after --set, with its meaning.
type Completion struct{ Text, Meaning string }

// Complete returns the completions of an unfinished table.key=value. Before the "=" they are keys;
// after it they are the values of a closed set, and the default.
func Complete(word string) []Completion {
	c := Default()
	list := settings(&c)
	name, value, valued := strings.Cut(word, "=")
	var found []Completion
	if !valued {
		for _, s := range list {
			if strings.HasPrefix(s.name(), name) {
				found = append(found, Completion{s.name() + "=", s.tag.Get("doc")})
			}
		}
		return found
	}
	s, ok := find(list, name)
	if !ok {
		return nil
	}
	standard := s.tag.Get("default")
	var values []string
	switch choices, closed := s.tag.Lookup("oneof"); {
	case closed:
		values = strings.Split(choices, ",")
	case s.value.Kind() == reflect.Bool:
		values = []string{"true", "false"}
	case standard != "":
		values = []string{standard}
	}
	for _, v := range values {
		if !strings.HasPrefix(v, value) {
			continue
		}
		meaning := ""
		if v == standard {
			meaning = "default"
		}
		found = append(found, Completion{name + "=" + v, meaning})
	}
	return found
}
