package routing

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// small is a recording of two blocks, three slots and four experts.
func small(t *testing.T) Recording {
	t.Helper()
	r, err := New(Recording{Name: "small", Experts: 4, Top: 2, Blocks: 2, Slots: 3, Replicas: 2, Tokens: 10})
	expect.OK(t, err)
	copy(r.Loads(1, 2), []uint16{5, 2, 3, 10})
	return r
}

// written returns the file of a recording.
func written(t *testing.T, r Recording) *bytes.Buffer {
	t.Helper()
	var file bytes.Buffer
	z := gzip.NewWriter(&file)
	expect.OK(t, json.NewEncoder(z).Encode(r))
	expect.OK(t, binary.Write(z, binary.LittleEndian, r.loads))
	expect.OK(t, z.Close())
	return &file
}

// TestRead: a recording is read, and a file that is no recording is refused.
func TestRead(t *testing.T) {
	r := small(t)
	got, err := read(written(t, r))
	expect.OK(t, err)
	if !slices.Equal(got.Loads(1, 2), []uint16{5, 2, 3, 10}) || got.Name != "small" || !slices.Equal(got.loads, r.loads) {
		t.Errorf("%+v, want %+v", got, r)
	}
	short := r
	short.Slots = 2
	long := r
	long.Slots = 4
	for want, r := range map[string]Recording{"loads: more than": short, "loads: unexpected EOF": long, "experts: 0": {}} {
		if _, err := read(written(t, r)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := read(strings.NewReader("text")); err == nil {
		t.Error("text is read")
	}
}

// TestRecorded: the recordings that are part of the program are whole. Every token of a slot goes to
// Top experts.
func TestRecorded(t *testing.T) {
	for _, name := range Recordings() {
		r, err := Named(name)
		expect.OK(t, err)
		for block := range r.Blocks {
			for slot := range r.Slots {
				sum := 0
				for _, n := range r.Loads(block, slot) {
					sum += int(n)
				}
				if all := r.Top * r.Tokens; sum != all {
					t.Fatalf("%s: block %d, slot %d: %d assignments of %d", name, block, slot, sum, all)
				}
			}
		}
	}
	if _, err := Named("mine"); err == nil || !strings.HasPrefix(err.Error(), `routing "mine": unknown, want one of `) {
		t.Error(err)
	}
}
