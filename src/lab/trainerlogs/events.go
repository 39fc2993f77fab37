package trainerlogs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"dynmo/src/files"
)

// mostEvent bounds the bytes of one event of a trace, which are in memory at once.
const mostEvent = 64 << 20

// traceEvent is an event of a Chrome trace, as PyTorch's profiler (Kineto) writes it.
type traceEvent struct {
	Category string          `json:"cat"`
	Name     string          `json:"name"`
	Thread   json.RawMessage `json:"tid"` // a number, or a text
	Begin    float64         `json:"ts"`  // microseconds
	Duration float64         `json:"dur"` // microseconds
	Args     struct {
		Correlation int64 `json:"correlation"` // of a kernel and of the call that launched it
	} `json:"args"`
}

// relevant are texts of which an event that counts has one.
var relevant = [][]byte{[]byte(`"PP:`), []byte(`"autograd::engine`), []byte(`"cuda_`), []byte(`"kernel"`), []byte(`"gpu_mem`)}

// ignoreTypes drops the error of a field that has another type: its event does not count here.
func ignoreTypes(err error) error {
	if _, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return nil
	}
	return err
}

// allowance reads at most `left` bytes, so that one value cannot fill the memory.
type allowance struct {
	io.Reader
	left int
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("an event of more than %d MiB, want a trace of PyTorch's profiler", mostEvent>>20)
	}
	n, err := a.Reader.Read(p)
	a.left -= n
	return n, err
}

// eachEvent calls f with every event of a trace that may count in turn, and returns the rank that the trace names; -1 if it
// names none. The file may be compressed. It is never in memory as a whole.
func eachEvent(path string, f func(e traceEvent) error) (rank int, err error) {
	r, err := files.Open(path, files.Unbound)
	if err != nil {
		return -1, err
	}
	defer r.Close()
	in, err := plain(r)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	a := &allowance{Reader: in, left: mostEvent}
	rank, err = a.events(f)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("cut off in the middle, want a whole trace")
	} else if wrong, is := errors.AsType[*json.SyntaxError](err); is {
		err = fmt.Errorf("no JSON at byte %d, want a trace of PyTorch's profiler", wrong.Offset)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return rank, err
}

func (a *allowance) events(f func(e traceEvent) error) (rank int, err error) {
	d := json.NewDecoder(a)
	if err := open(d, '{'); err != nil {
		return -1, err
	}
	rank = -1
	seen := false
	for d.More() {
		a.left = mostEvent
		key, err := d.Token()
		if err != nil {
			return rank, err
		}
		switch key {
		case "distributedInfo":
			var info struct {
				Rank *int `json:"rank"`
			}
			if err := d.Decode(&info); err != nil {
				return rank, err
			}
			if info.Rank != nil {
				rank = *info.Rank
			}
		case "traceEvents":
			seen = true
			if err := a.list(d, f); err != nil {
				return rank, err
			}
		default:
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return rank, err
			}
		}
	}
	if _, err = d.Token(); err == nil && !seen {
		err = errors.New("no traceEvents, want a trace of PyTorch's profiler")
	}
	return rank, err
}

// list reads the events.
func (a *allowance) list(d *json.Decoder, f func(e traceEvent) error) error {
	if err := open(d, '['); err != nil {
		return err
	}
	var text json.RawMessage
	for d.More() {
		a.left = mostEvent
		if err := d.Decode(&text); err != nil {
			return err
		}
		if !slices.ContainsFunc(relevant, func(t []byte) bool { return bytes.Contains(text, t) }) { // faster than to read all fields
			continue
		}
		var e traceEvent
		if err := ignoreTypes(json.Unmarshal(text, &e)); err != nil {
			return err
		}
		if err := f(e); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// open reads the begin of an object or a list.
func open(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%.20q, want %q: a trace of PyTorch's profiler", strings.TrimSpace(fmt.Sprint(token)), want.String())
	}
	return err
}
