package model

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Stage is the layers that one rank owns: a stretch of the chain.
type Stage struct {
	Config Config
	First  int // chain position of Layers[0]
	Layers []*Layer
}

// NewStage returns layers [lo, hi) of the chain with their initial weights.
func NewStage(c Config, lo, hi int, d device.Device, t tensor.DType) (*Stage, error) {
	s := &Stage{Config: c, First: lo}
	for id := lo; id < hi; id++ {
		l, err := NewLayer(c, id, d, t)
		if err != nil {
			s.Free()
			return nil, err
		}
		s.Layers = append(s.Layers, l)
	}
	return s, nil
}

// Layer returns a layer by its chain position, nil if another stage owns it.
func (s *Stage) Layer(id int) *Layer {
	if id < s.First || id >= s.First+len(s.Layers) {
		return nil
	}
	return s.Layers[id-s.First]
}

// Free gives the memory of all layers back.
func (s *Stage) Free() {
	for _, l := range s.Layers {
		l.Free()
	}
}

// Hash returns the SHA-256 of everything that is the layer's state: formats,
// counters, weights, moments and sparse structure.
func (l *Layer) Hash() [sha256.Size]byte {
	h := sha256.New()
	header, err := json.Marshal(l.Header())
	if err != nil {
		panic("model: header does not marshal")
	}
	h.Write(header)
	for _, s := range l.Sections() {
		fmt.Fprintf(h, "%s %d\n", s.Name, s.Mem.Bytes)
		h.Write(tensor.Of[byte](s.Mem))
	}
	return [sha256.Size]byte(h.Sum(nil))
}
