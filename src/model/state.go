package model

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Section is one named item of a layer's state: memory, or text. All sections together are the whole
// state of a layer between two steps. Gradients are not state: the next step sets them to zero. As
// JSON a section is its name, its length and its text.
type Section struct {
	Name  string     `json:"name"`
	Bytes int64      `json:"bytes"`
	Text  []byte     `json:"text,omitempty"`
	Mem   tensor.Mem `json:"-"`
}

// ForUpdate reports whether the section is masters or moments, which only the update of the weights
// reads.
func (s Section) ForUpdate() bool {
	return s.Name == masterSection || s.Name == moment1Section || s.Name == moment2Section
}

func inMemory(name string, m tensor.Mem) Section { return Section{Name: name, Bytes: m.Bytes, Mem: m} }

// Names of the sections of every layer. The first is a header as JSON.
const (
	headerSection  = "header"
	weightsSection = "weights"
	masterSection  = "master"
	moment1Section = "moment1"
	moment2Section = "moment2"
	indexSection   = "index"
)

// header says what the memory of a layer holds. With the model's Config it is
// enough to make an empty copy of the layer elsewhere.
type header struct {
	Layer   int      `json:"layer"`
	Updates int      `json:"updates"`
	Formats []Format `json:"formats"` // of every parameter, in slab order; none: all are dense
	NNZ     []int    `json:"nnz"`
	Frozen  []int    `json:"frozen,omitempty"` // parameters

	Threshold *float64 `json:"threshold,omitempty"` // of an exit; nil of other layers
}

func (l *Layer) header() header {
	h := header{Layer: l.ID, Updates: l.Updates}
	for i, p := range l.params {
		if !l.placed() { // replicas may have other parameters, all dense
			h.Formats = append(h.Formats, p.Format)
			h.NNZ = append(h.NNZ, p.NNZ)
		}
		if p.Frozen && !(l.placed() && (p.Own || p.Copy)) {
			h.Frozen = append(h.Frozen, i)
		}
	}
	if threshold, ok := l.Tuning(); ok {
		h.Threshold = &threshold
	}
	return h
}

// Sections returns the layer's state between two steps: header, weights, masters, moments, sparse
// structure, then the sections that kinds registered, by name. Masters and moments of a sliced layer
// are this replica's slice.
func (l *Layer) Sections() []Section {
	text, err := json.Marshal(l.header())
	if err != nil {
		panic("model: header does not marshal")
	}
	list := []Section{{Name: headerSection, Bytes: int64(len(text)), Text: text}}
	for _, s := range []Section{
		inMemory(weightsSection, l.w), inMemory(masterSection, l.master), inMemory(moment1Section, l.m), inMemory(moment2Section, l.v),
		inMemory(indexSection, l.index),
	} {
		if !s.Mem.IsZero() || l.Sliced() && l.own > 0 && s.ForUpdate() && (s.Name != masterSection || l.dtype != l.dtype.Wide()) {
			list = append(list, s) // a slice may be empty
		}
	}
	return append(list, l.state...)
}

// Restore makes a layer from the names, lengths and texts of sections. It does not read their memory.
// The caller must write the memory of the new layer's Sections before the layer is used; they are the
// same sections in the same order. If the bytes come from a file the caller must then call
// CheckStructure. Sections with unknown names are kept as registered ones. The error says which
// section does not fit the Config.
func Restore(c Config, sections []Section, d device.Device, t tensor.DType) (*Layer, error) {
	var h header
	if len(sections) == 0 || sections[0].Name != headerSection {
		return nil, fmt.Errorf("state of a layer: want %q first", headerSection)
	}
	if err := json.Unmarshal(sections[0].Text, &h); err != nil {
		return nil, fmt.Errorf("state of a layer: %s: %w", headerSection, err)
	}
	chain := c.Chain()
	if h.Layer < 0 || h.Layer >= len(chain) {
		return nil, fmt.Errorf("state of layer %d, the chain has %d", h.Layer, len(chain))
	}
	if err := h.check(c, chain[h.Layer], t); err != nil {
		return nil, fmt.Errorf("state of layer %d: %s: %w", h.Layer, headerSection, err)
	}
	l, err := newLayer(c, chain[h.Layer], h, d, t)
	if err != nil {
		return nil, err
	}
	known := l.Sections()
	for _, s := range sections[1:] {
		at := slices.IndexFunc(known, func(k Section) bool { return k.Name == s.Name })
		switch {
		case at >= 0 && known[at].Bytes != s.Bytes:
			err = fmt.Errorf("%d bytes, want %d", s.Bytes, known[at].Bytes)
		case at >= 0:
		case s.Text != nil:
			l.SetState(s.Name, s.Text)
		default:
			_, err = l.AllocState(s.Name, s.Bytes)
		}
		if err != nil {
			l.Free()
			return nil, fmt.Errorf("layer %d (%s): %s: %w", l.ID, l.Name, s.Name, err)
		}
	}
	return l, nil
}

// State returns a section that SetState or AllocState registered, by name.
func (l *Layer) State(name string) (Section, bool) {
	at, ok := l.findState(name)
	if !ok {
		return Section{}, false
	}
	return l.state[at], true
}

func (l *Layer) findState(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(l.state, name, func(s Section, name string) int { return strings.Compare(s.Name, name) })
}

// SetState registers text as a section, which moves with the layer and counts in its Hash. It
// replaces a section of the same name.
func (l *Layer) SetState(name string, text []byte) {
	l.register(Section{Name: name, Bytes: int64(len(text)), Text: text})
}

// AllocState registers zeroed host memory as a section, in place of one of the same name. The layer
// owns the memory and frees it.
func (l *Layer) AllocState(name string, bytes int64) (tensor.Mem, error) {
	m, err := device.AllocAside(l.device, bytes)
	if err == nil {
		l.register(inMemory(name, m))
	}
	return m, err
}

func (l *Layer) register(s Section) {
	at, ok := l.findState(s.Name)
	if !ok {
		l.state = slices.Insert(l.state, at, s)
		return
	}
	device.FreeAside(l.device, l.state[at].Mem)
	l.state[at] = s
}

// Hash returns the SHA-256 of everything that is the layer's state. No work on
// the layer may be under way.
func (l *Layer) Hash() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, s := range l.Sections() {
		host, err := device.Read(l.device, s.Mem)
		if err != nil {
			return sum, fmt.Errorf("hash: layer %d: %s: %w", l.ID, s.Name, err)
		}
		if s.Name != headerSection { // which says how long it is
			fmt.Fprintf(h, "%s %d\n", s.Name, s.Bytes)
		}
		h.Write(s.Text)
		h.Write(tensor.Of[byte](host))
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
