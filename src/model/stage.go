package model

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Stage is the layers that one rank owns, in chain order: one stretch of the
// chain or several.
type Stage struct {
	Config Config
	Layers []*Layer
}

// NewStage returns layers of the chain, ids ascending, with their initial
// weights.
func NewStage(c Config, ids []int, d device.Device, t tensor.DType) (*Stage, error) {
	s := &Stage{Config: c}
	for _, id := range ids {
		l, err := NewLayer(c, id, d, t)
		if err != nil {
			s.Free()
			return nil, err
		}
		s.Layers = append(s.Layers, l)
	}
	return s, nil
}

// Chain returns the positions of all layers.
func (c Config) Chain() []int {
	ids := make([]int, c.Layers())
	for id := range ids {
		ids[id] = id
	}
	return ids
}

// Layer returns a layer by its chain position, nil if another stage owns it.
func (s *Stage) Layer(id int) *Layer {
	if at, ok := s.find(id); ok {
		return s.Layers[at]
	}
	return nil
}

// Stretch returns layers [lo, hi) of the chain, all of which the stage owns.
func (s *Stage) Stretch(lo, hi int) []*Layer {
	first, ok := s.find(lo)
	last, _ := s.find(hi - 1)
	if !ok || last-first != hi-1-lo {
		panic("model: a stretch that the stage does not own")
	}
	return s.Layers[first : last+1]
}

// find returns where a layer is, or would be, in Layers.
func (s *Stage) find(id int) (at int, ok bool) {
	return slices.BinarySearchFunc(s.Layers, id, func(l *Layer, id int) int { return l.ID - id })
}

// Free gives the memory of all layers back.
func (s *Stage) Free() {
	for _, l := range s.Layers {
		l.Free()
	}
}

// Hash returns the SHA-256 of everything that is the layer's state: formats,
// counters, weights, moments and sparse structure. No work on the layer may be
// under way.
func (l *Layer) Hash() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	header, err := json.Marshal(l.Header())
	if err != nil {
		panic("model: header does not marshal")
	}
	h.Write(header)
	for _, s := range l.Sections() {
		host, err := device.Read(l.device, s.Mem)
		if err != nil {
			return sum, fmt.Errorf("hash: layer %d: %s: %w", l.ID, s.Name, err)
		}
		fmt.Fprintf(h, "%s %d\n", s.Name, s.Mem.Bytes)
		h.Write(tensor.Of[byte](host))
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
