package checkpoint

import (
	"fmt"
	"reflect"
	"strconv"
)

// keys is the members of a JSON object.
type keys map[string]value

// members returns the members of an object.
func members(v value) (keys, error) {
	k := make(keys)
	err := v.members(func(key string, v value) error {
		k[key] = v
		return nil
	})
	return k, err
}

// fail returns an error of a member.
func (k keys) fail(key, format string, args ...any) error {
	return fmt.Errorf("%s: %w", key, k[key].fail(format, args...))
}

// absent reports whether a key is not there, or null.
func (k keys) absent(key string) bool {
	v, ok := k[key]
	return !ok || string(v.json) == "null"
}

// dimension is where an integer of a configuration goes.
type dimension struct {
	key   string
	to    *int
	limit int64
}

// dimensions sets those that are there. Each is in [1, limit].
func (k keys) dimensions(list ...dimension) error {
	for _, d := range list {
		v, ok := k[d.key]
		if !ok {
			continue
		}
		n, err := v.integer()
		if err != nil || n < 1 || n > d.limit {
			return k.fail(d.key, "%.100s: want an integer from 1 to %d", v.json, d.limit)
		}
		*d.to = int(n)
	}
	return nil
}

// number sets a number in [least, most] where the key is there.
func (k keys) number(key string, to *float64, least, most float64) error {
	v, ok := k[key]
	if !ok {
		return nil
	}
	x, err := strconv.ParseFloat(string(v.json), 64)
	if err != nil || !(x >= least && x <= most) {
		return k.fail(key, "%.100s: want a number from %g to %g", v.json, least, most)
	}
	*to = x
	return nil
}

// flag sets what is true or false where the key is there.
func (k keys) flag(key string, to *bool) error {
	v, ok := k[key]
	if !ok {
		return nil
	}
	*to = string(v.json) == "true"
	if !*to && string(v.json) != "false" {
		return k.fail(key, "%.100s: want true or false", v.json)
	}
	return nil
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }
