package balance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// ParseLoads reads a chain from JSON and cuts it over stages:
//
//	{"seconds": […], "bytes": […], "capacity_bytes": N, "fixed_seconds": [… by stage]}
//
// seconds are by layer for one microbatch, bytes by layer, capacity_bytes is
// what each stage holds (0: no limit); all but seconds may be left out. Errors
// begin with the file's name and name the field; unknown and repeated fields,
// nulls, and anything behind the object are errors.
func ParseLoads(file string, data []byte, stages int) (Problem, error) {
	l, err := parseLoads(data)
	if err != nil {
		return Problem{}, fmt.Errorf("%s: %w", file, err)
	}
	p := Problem{Stages: stages, Seconds: l.seconds, StaticBytes: l.bytes, Fixed: l.fixed}
	if l.capacity != nil && stages > 0 && stages <= len(l.seconds) { // else Check says what is wrong
		p.Capacity = slices.Repeat([]int64{*l.capacity}, stages)
	}
	if err := p.Check(); err != nil {
		return Problem{}, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// loads is the content of a loads file.
type loads struct {
	seconds  []float64
	bytes    []int64
	capacity *int64 // nil if absent
	fixed    []float64
}

// loadsFields are the fields of a loads file.
var loadsFields = []string{"seconds", "bytes", "capacity_bytes", "fixed_seconds"}

func parseLoads(data []byte) (l loads, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return l, fmt.Errorf("want a JSON object with %q", loadsFields)
	}
	var seen []string
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return l, fmt.Errorf("byte %d: %w", d.InputOffset(), err)
		}
		field := token.(string) // an object's keys are strings, or Token fails
		if slices.Contains(seen, field) {
			return l, fmt.Errorf("%s: given twice", field)
		}
		seen = append(seen, field)
		if err := l.set(field, d); err != nil {
			return l, err
		}
	}
	if _, err := d.Token(); err != nil {
		return l, fmt.Errorf("byte %d: the object does not end: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return l, fmt.Errorf("byte %d: want nothing behind the object", d.InputOffset())
	}
	if l.seconds == nil {
		return l, fmt.Errorf("seconds: missing")
	}
	return l, nil
}

// set reads the value of one field.
func (l *loads) set(field string, d *json.Decoder) (err error) {
	switch field {
	case "seconds":
		l.seconds, err = list[float64](field, d)
	case "bytes":
		l.bytes, err = list[int64](field, d)
	case "fixed_seconds":
		l.fixed, err = list[float64](field, d)
	case "capacity_bytes":
		if err := d.Decode(&l.capacity); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if l.capacity == nil {
			return fmt.Errorf("%s: null, want a whole number", field)
		}
	default:
		return fmt.Errorf("%s: unknown field, want one of %q", field, loadsFields)
	}
	return err
}

// list reads an array of numbers.
func list[T float64 | int64](field string, d *json.Decoder) ([]T, error) {
	var raw []*T
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("%s: want an array with at least one number", field)
	}
	out := make([]T, len(raw))
	for i, x := range raw {
		if x == nil {
			return nil, fmt.Errorf("%s[%d]: null, want a number", field, i)
		}
		out[i] = *x
	}
	return out, nil
}
