package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"dynmo/src/model"
)

// Load sets the weights of a dense layer of a model that fits the weights. The learned parameters
// of exits and routers are in no file and stay unchanged, and so do moments and counters.
func (w *Weights) Load(l *model.Layer) error {
	byName := make(map[string]model.Weight)
	for _, p := range w.Config.Model.Weights() {
		byName[p.Name] = p
	}
	for _, p := range l.Params() {
		if p.Format != model.Dense {
			panic("weights: Load into a layer that is not dense")
		}
		from, ok := byName[p.File]
		if p.File == "" {
			continue
		}
		if !ok || !slices.Equal(from.Shape, p.Shape()) {
			return fmt.Errorf("layer %d (%s): %s: want %v, the weights have %v", l.ID, l.Name, p.Name, p.Shape(), from.Shape)
		}
		if err := l.Set(p, func(dst model.Values) error { return w.load(dst, p, from) }); err != nil {
			return fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
		}
	}
	return nil
}

// loadBytes is the approximate number of bytes that are read at a time, so that reading needs
// little memory beside that of the layer.
const loadBytes = 1 << 20

// load sets the values of a parameter from its rows of the weight `from`.
func (w *Weights) load(dst model.Values, p *model.Param, from model.Weight) error {
	piece := max(1, loadBytes/from.Row())
	for lo := int64(0); lo < int64(p.Rows); lo += piece {
		hi := min(lo+piece, int64(p.Rows))
		values, err := w.floats(from, int64(p.First)+lo, int64(p.First)+hi)
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

// FromChain returns the weights of a whole chain of layers as float32, with zeros for pruned
// weights. Layers are read only when the weights are written. layer returns the layer at a chain
// position, valid until the next call. free frees the last layer. Names in files of other programs
// are those of a model with its head.
func FromChain(c model.Config, layer func(id int) (*model.Layer, error), free func()) *Weights {
	owners := c.Owners()
	var one sync.Mutex // guards last and values: one weight is read at a time
	var last string    // name of the weight in values
	var values []byte
	rows := func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		one.Lock()
		defer one.Unlock()
		if p.Name != last {
			last, values = "", nil
			for _, id := range owners[p.Name] {
				l, err := layer(id)
				if err != nil {
					return nil, err
				}
				v, err := stored{l, l.Param(p.Name)}.dense()
				if err != nil {
					return nil, err
				}
				values = append(values, v...)
			}
			last = p.Name
		}
		return append(dst, values[lo*p.Row():hi*p.Row()]...), nil
	}
	config := newConfig(c)
	return &Weights{Config: config, Prefix: config.form.Prefix, rows: rows, close: func() error { free(); return nil }}
}

// stored is a parameter with its layer.
type stored struct {
	layer *model.Layer
	param *model.Param
}

// dense returns the values of a parameter in any format as dense float32.
func (s stored) dense() ([]byte, error) {
	p := s.param
	values := make([]byte, 4*p.Rows*p.Cols)
	w, err := s.layer.Get(p)
	if err != nil {
		return nil, err
	}
	put := func(i, k int) { binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(float32(w.At(k)))) }
	if !p.Format.Sparse() {
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
