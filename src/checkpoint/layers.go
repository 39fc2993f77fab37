package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/model"
)

// fileName returns the name of a layer's parameter in a weights file: halves
// of a block share the block's name and slices of the head the head's, a tied
// head has the embedding's matrix.
func fileName(l *model.Layer, p *model.Param) string {
	if p == l.Tied() {
		return tokenTable
	}
	name := strings.TrimSuffix(strings.TrimSuffix(l.Name, ".attention"), ".mlp")
	if strings.HasPrefix(name, "head.") {
		name = "head"
	}
	return name + "/" + p.Name
}

// shapeOf returns the shape of a parameter in a weights file, which holds the
// whole matrix where a layer holds a slice.
func shapeOf(p *model.Param) []int64 {
	if strings.HasSuffix(p.Name, ".bias") || strings.HasPrefix(p.Name, "norm") {
		return []int64{int64(p.Rows)}
	}
	return []int64{int64(p.Whole()), int64(p.Cols)}
}

// Load sets the weights of a dense layer of a model that the weights fit.
// Moments and counters are left alone.
func (w *Weights) Load(l *model.Layer) error {
	byName := make(map[string]parameter)
	for _, p := range parameters(w.Config.Model) {
		byName[p.name] = p
	}
	for _, p := range l.Params() {
		if p.Format != model.Dense {
			panic("checkpoint: Load into a layer that is not dense")
		}
		from, ok := byName[fileName(l, p)]
		if !ok || !slices.Equal(from.shape, shapeOf(p)) {
			return fmt.Errorf("layer %d (%s): %s: want %v, the weights have %v", l.ID, l.Name, p.Name, shapeOf(p), from.shape)
		}
		if err := l.Set(p, func(dst model.Values) error { return w.load(dst, p, from) }); err != nil {
			return fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
		}
	}
	return nil
}

// loadBytes is about how much Load reads at a time, so that reading takes little
// memory beside the layer's own.
const loadBytes = 1 << 20

// load sets the values of a parameter from the rows that it has of from.
func (w *Weights) load(dst model.Values, p *model.Param, from parameter) error {
	piece := max(1, loadBytes/from.row())
	for lo := int64(0); lo < int64(p.Rows); lo += piece {
		hi := min(lo+piece, int64(p.Rows))
		values, err := w.rows(from, int64(p.First)+lo, int64(p.First)+hi)
		if err != nil {
			return err
		}
		at := int(lo) * p.Cols
		for i := range len(values) / 4 {
			dst.Set(at+i, float64(math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))))
		}
	}
	return nil
}

// FromLayers returns the weights of a whole chain of layers, as float32, with
// zeros for what is pruned. They are read from the layers when they are written.
func FromLayers(c model.Config, layers []*model.Layer) (*Weights, error) {
	if len(layers) != c.Layers() {
		return nil, errors.New("weights of a part of the chain: want all layers")
	}
	at := make(map[string][]stored) // a matrix, or its slices in order
	for _, l := range layers {
		for _, p := range l.Params() {
			if p != l.Tied() || l.ID == c.Embedding() {
				at[fileName(l, p)] = append(at[fileName(l, p)], stored{l, p})
			}
		}
	}
	return &Weights{Config: NewConfig(c), close: func() error { return nil }, rows: func(p parameter, lo, hi int64) ([]byte, error) {
		var values []byte
		for _, slice := range at[p.name] {
			v, err := slice.dense()
			if err != nil {
				return nil, err
			}
			values = append(values, v...)
		}
		return values[lo*p.row() : hi*p.row()], nil
	}}, nil
}

// stored is a parameter and the layer that has it.
type stored struct {
	layer *model.Layer
	param *model.Param
}

// dense returns the values of a parameter of any format as dense float32.
func (s stored) dense() ([]byte, error) {
	p := s.param
	values := make([]byte, 4*p.Rows*p.Cols)
	w, err := s.layer.Get(p)
	if err != nil {
		return nil, err
	}
	put := func(i, k int) { binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(float32(w.At(k)))) }
	if p.Format != model.CSR {
		for i := range w.Len() {
			put(i, i)
		}
		return values, nil
	}
	rows, cols, err := s.layer.Structure(p)
	if err != nil {
		return nil, err
	}
	for r := range p.Rows {
		for k := rows[r]; k < rows[r+1]; k++ {
			put(r*p.Cols+int(cols[k]), int(k))
		}
	}
	return values, nil
}
