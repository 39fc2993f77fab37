package model

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"dynmo/src/device"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Stage is the layers that one rank owns, in chain order: one segment of the
// chain or several.
type Stage struct {
	Config Config
	Layers []*Layer
	Watch  *Watch // what the next step compares with a second model; nil: nothing
}

// NewStage returns layers of the chain with their initial weights. ids are chain positions,
// ascending. t is the type of weights and activations.
func NewStage(c Config, ids []int, d device.Device, t tensor.DType) (*Stage, error) {
	return newStage(c, ids, func(id int) (*Layer, error) { return makeLayer(c, id, d, t) })
}

// ZeroStage is NewStage with weights that are zero, for backends that look at shapes only.
func ZeroStage(c Config, ids []int, d device.Device, t tensor.DType) (*Stage, error) {
	return newStage(c, ids, func(id int) (*Layer, error) { return newLayer(c, c.Chain()[id], header{Layer: id}, d, t) })
}

func newStage(c Config, ids []int, layer func(id int) (*Layer, error)) (*Stage, error) {
	s := &Stage{Config: c}
	for _, id := range ids {
		l, err := layer(id)
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
	if at, ok := s.find(id); ok {
		return s.Layers[at]
	}
	return nil
}

// Segment returns layers [lo, hi) of the chain. It panics unless the stage owns all of them.
func (s *Stage) Segment(lo, hi int) []*Layer {
	first, ok := s.find(lo)
	last, _ := s.find(hi - 1)
	if !ok || last-first != hi-1-lo {
		panic("model: a segment that the stage does not own")
	}
	return s.Layers[first : last+1]
}

// find returns where a layer is, or would be, in Layers.
func (s *Stage) find(id int) (at int, ok bool) {
	return slices.BinarySearchFunc(s.Layers, id, func(l *Layer, id int) int { return l.ID - id })
}

// Param returns a layer's parameter with a Param.Weight, nil if another stage owns the layer or the
// layer has no such parameter. layer is a chain position.
func (s *Stage) Param(layer int, weight string) *Param {
	if l := s.Layer(layer); l != nil {
		return l.Param(weight)
	}
	return nil
}

// Freeze freezes the layers for which frozen returns true, and the matrices that other layers borrow
// from them. All other layers train. layer is a chain position.
func (s *Stage) Freeze(frozen func(layer int) bool) {
	lent := make(map[*Param]bool)
	for _, t := range s.Config.Ties() {
		lent[s.Param(t.Borrower, t.Weight)] = frozen(t.Owner)
	}
	for _, l := range s.Layers {
		l.Freeze(func(p *Param) bool {
			if p.Borrowed() {
				return lent[p]
			}
			return frozen(l.ID)
		})
	}
}

// Free gives the memory of all layers back.
func (s *Stage) Free() {
	for _, l := range s.Layers {
		l.Free()
	}
}

// initialise draws a parameter's first values: normal with the parameter's deviation, or constant 1
// or 0. The stream of a row is keyed by (seed, block, name, row of the whole matrix). So values do
// not depend on grain, slices, placement or order of construction.
func (l *Layer) initialise(p *Param, seed uint64) error {
	name := fnv.New64a()
	name.Write([]byte(p.Name))
	var pcg rand.PCG
	draw := rand.New(&pcg)
	value := func() float64 { return p.Deviation * draw.NormFloat64() }
	switch {
	case p.Deviation < 0:
		value = func() float64 { return 1 }
	case p.Deviation == 0:
		return nil // Alloc gave zeros
	}
	return l.Set(p, func(w Values) error {
		for r := range p.Rows {
			random.Seed(&pcg, seed, uint64(p.block+1), name.Sum64(), uint64(p.First+r))
			for i := range p.Cols {
				w.Set(r*p.Cols+i, value())
			}
		}
		return nil
	})
}
