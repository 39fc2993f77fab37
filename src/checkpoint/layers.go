package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/model"
	"dynmo/src/tensor"
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
		if err := w.load(p, from); err != nil {
			return fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
		}
	}
	return nil
}

// loadBytes is about how much Load reads at a time, so that reading takes little
// memory beside the layer's own.
const loadBytes = 1 << 20

// load sets the values of a parameter from the rows that it has of from.
func (w *Weights) load(p *model.Param, from parameter) error {
	piece := max(1, loadBytes/from.row())
	for lo := int64(0); lo < int64(p.Rows); lo += piece {
		hi := min(lo+piece, int64(p.Rows))
		values, err := w.rows(from, int64(p.First)+lo, int64(p.First)+hi)
		if err != nil {
			return err
		}
		at := lo * int64(p.Cols)
		if float64s(p) {
			decode(tensor.Of[float64](p.W)[at:], values)
		} else {
			decode(tensor.Of[float32](p.W)[at:], values)
		}
	}
	return nil
}

// float64s reports whether a parameter is held in float64.
func float64s(p *model.Param) bool { return p.W.Bytes == int64(p.Stored())*tensor.F64.Size() }

func decode[F float32 | float64](dst []F, values []byte) {
	for i := range len(values) / 4 {
		dst[i] = F(math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:])))
	}
}

// FromLayers returns the weights of a whole chain of layers, as float32, with
// zeros for what is pruned. They are read from the layers when they are written.
func FromLayers(c model.Config, layers []*model.Layer) (*Weights, error) {
	if len(layers) != c.Layers() {
		return nil, errors.New("weights of a part of the chain: want all layers")
	}
	at := make(map[string][]*model.Param) // a matrix, or its slices in order
	for _, l := range layers {
		for _, p := range l.Params() {
			if p != l.Tied() || l.ID == c.Embedding() {
				at[fileName(l, p)] = append(at[fileName(l, p)], p)
			}
		}
	}
	return &Weights{Config: NewConfig(c), close: func() error { return nil }, rows: func(p parameter, lo, hi int64) ([]byte, error) {
		if whole := at[p.name]; len(whole) == 1 {
			return dense(whole[0])[lo*p.row() : hi*p.row()], nil
		}
		var values []byte
		for _, slice := range at[p.name] {
			values = append(values, dense(slice)...)
		}
		return values[lo*p.row() : hi*p.row()], nil
	}}, nil
}

// dense returns the values of a parameter of any format as dense float32.
func dense(p *model.Param) []byte {
	if float64s(p) {
		return expand[float64](p)
	}
	return expand[float32](p)
}

func expand[F float32 | float64](p *model.Param) []byte {
	values := make([]byte, 4*p.Rows*p.Cols)
	put := func(i int, v F) { binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(float32(v))) }
	w := tensor.Of[F](p.W)
	if p.Format != model.CSR {
		for i, v := range w {
			put(i, v)
		}
		return values
	}
	rows, cols := tensor.Of[int32](p.RowPtr), tensor.Of[int32](p.ColIdx)
	for r := range p.Rows {
		for k := rows[r]; k < rows[r+1]; k++ {
			put(r*p.Cols+int(cols[k]), w[k])
		}
	}
	return values
}
