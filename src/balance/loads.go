package balance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/files"
)

// ParseLoads reads a chain from JSON and cuts it over stages:
//
//	{"seconds": […], "bytes": […], "capacity_bytes": N, "fixed_seconds": [… by stage]}
//
// seconds is by layer for one microbatch, bytes by layer. capacity_bytes is the limit of each stage
// (0: no limit). Every field except seconds may be absent. Errors begin with the file's name and
// name the field. Unknown and repeated fields, nulls, and anything after the object are errors.
func ParseLoads(file string, data []byte, stages int) (Problem, error) {
	p, err := parseLoads(data, stages)
	if err == nil {
		err = cmp.Or(bounded("seconds", p.Seconds), bounded("fixed_seconds", p.Fixed), p.Check())
	}
	if err != nil {
		return Problem{}, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// bounded returns an error if a time exceeds cost.MostSeconds.
func bounded(field string, seconds []float64) error {
	if i := slices.IndexFunc(seconds, func(x float64) bool { return x > cost.MostSeconds }); i >= 0 {
		return fmt.Errorf("%s[%d]: %v, want at most %g", field, i, seconds[i], cost.MostSeconds)
	}
	return nil
}

// parseLoads reads the fields one by one. encoding/json would keep the last of repeated fields,
// accept null for any number, and could not name the field of a syntax error.
func parseLoads(data []byte, stages int) (Problem, error) {
	p := Problem{Stages: stages}
	var capacity int64
	fields := map[string]any{"seconds": &p.Seconds, "bytes": &p.StaticBytes, "capacity_bytes": &capacity, "fixed_seconds": &p.Fixed}
	d := json.NewDecoder(bytes.NewReader(data))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return p, fmt.Errorf(`want a JSON object with "seconds"`)
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return p, fmt.Errorf("byte %d: %w", d.InputOffset(), err)
		}
		field := token.(string) // Token returns an error for a key that is no string
		value, known := fields[field]
		if !known {
			return p, fmt.Errorf("%s: unknown key; the nearest is %s", field, files.Nearest(field, slices.Sorted(maps.Keys(fields))))
		}
		if value == nil {
			return p, fmt.Errorf("%s: stands twice", field)
		}
		fields[field] = nil
		if err := decodeNumbers(d, value); err != nil {
			return p, fmt.Errorf("%s%w", field, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return p, fmt.Errorf("byte %d: the object does not end: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return p, fmt.Errorf("byte %d: want nothing behind the object", d.InputOffset())
	}
	if p.Seconds == nil {
		return p, fmt.Errorf("seconds: missing")
	}
	if fields["capacity_bytes"] == nil && stages > 0 && stages <= p.Layers() { // else Check returns the error
		p.Capacity = slices.Repeat([]int64{capacity}, stages)
	}
	return p, nil
}

// decodeNumbers reads a number, or an array with at least one number. Its errors continue a text
// that begins with the field's name.
func decodeNumbers(d *json.Decoder, value any) error {
	var text json.RawMessage
	err := d.Decode(&text)
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	before, _, null := bytes.Cut(text, []byte("null"))
	switch {
	case null && len(before) > 0:
		return fmt.Errorf("[%d]: null, want a number", bytes.Count(before, []byte(",")))
	case null:
		return fmt.Errorf(": null, want numbers")
	case !bytes.ContainsAny(text, "0123456789"):
		return fmt.Errorf(": want an array with at least one number")
	}
	return nil
}
