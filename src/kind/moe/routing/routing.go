// Package routing has the rows of experts for studies that train nothing. A name and a seed go in. Out
// come rows by expert, of a microbatch of all replicas. The rows are recorded from a trained mixture of
// experts, or made up.
package routing

import (
	"bufio"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Recording is where the tokens of a trained model went. A slot is a microbatch of all
// replicas: what the experts of a layer work on while it is in flight, if each replica of
// the stage holds some of them.
type Recording struct {
	Name     string `json:"name"`     // such as mixtral-32-aux: model, blocks, how loads are kept equal
	Experts  int    `json:"experts"`  // of a block
	Top      int    `json:"top"`      // experts that a token goes to
	Blocks   int    `json:"blocks"`   // in the model
	Slots    int    `json:"slots"`    // microbatches, consecutive
	Replicas int    `json:"replicas"` // that a slot is the sum of
	Tokens   int    `json:"tokens"`   // of a slot

	loads []uint16 // by block, slot and expert
}

// New returns a recording without loads. Tokens of a slot must fit into 16 bits.
func New(r Recording) (Recording, error) {
	for _, f := range []struct {
		name     string
		got, max int
	}{
		{"experts", r.Experts, 1 << 12}, {"top", r.Top, r.Experts}, {"blocks", r.Blocks, 1 << 12},
		{"slots", r.Slots, 1 << 16}, {"replicas", r.Replicas, 1 << 12}, {"tokens", r.Tokens, 1<<16 - 1},
	} {
		if f.got < 1 || f.got > f.max {
			return r, fmt.Errorf("routing: %s: %d, want 1 to %d", f.name, f.got, f.max)
		}
	}
	if values := r.Blocks * r.Slots * r.Experts; values > mostValues {
		return r, fmt.Errorf("routing: %d loads, want at most %d", values, mostValues)
	}
	r.loads = make([]uint16, r.Blocks*r.Slots*r.Experts)
	return r, nil
}

// mostValues bounds the memory of a recording.
const mostValues = 1 << 26

// Loads returns the tokens of the experts of a block in a slot. The caller may set them.
func (r Recording) Loads(block, slot int) []uint16 {
	i := (block*r.Slots + slot) * r.Experts
	return r.loads[i : i+r.Experts : i+r.Experts]
}

// read reads a recording: compressed, a line of JSON, then the loads as 16-bit numbers,
// little-endian.
func read(in io.Reader) (Recording, error) {
	fail := func(err error) (Recording, error) { return Recording{}, fmt.Errorf("routing: %w", err) }
	z, err := gzip.NewReader(in)
	if err != nil {
		return fail(err)
	}
	text := bufio.NewReader(z)
	head, err := text.ReadSlice('\n')
	if err != nil {
		return fail(fmt.Errorf("first line: %w", err))
	}
	var r Recording
	if err := json.Unmarshal(head, &r); err != nil {
		return fail(fmt.Errorf("first line: %w", err))
	}
	if r, err = New(r); err != nil {
		return r, err
	}
	if err := binary.Read(text, binary.LittleEndian, r.loads); err != nil {
		return fail(fmt.Errorf("loads: %w", err))
	}
	if _, err := text.ReadByte(); err != io.EOF {
		return fail(errors.New("loads: more than blocks, slots and experts say"))
	}
	return r, nil
}

//go:embed recorded/*.gz
var recorded embed.FS

// Recordings lists the recordings that are part of the program.
func Recordings() []string {
	entries, err := recorded.ReadDir("recorded")
	if err != nil {
		panic("routing: no recordings")
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".gz"))
	}
	return names
}

// Named returns a recording that is part of the program.
func Named(name string) (Recording, error) {
	if !slices.Contains(Recordings(), name) {
		return Recording{}, fmt.Errorf("routing %q: unknown, want one of %s", name, strings.Join(Recordings(), ", "))
	}
	f, err := recorded.Open("recorded/" + name + ".gz")
	if err != nil {
		return Recording{}, err
	}
	defer f.Close()
	return read(f)
}
