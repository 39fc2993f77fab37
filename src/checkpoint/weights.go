package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"

	"dynmo/src/model"
)

// Weights is the weights of a whole model, wherever they lie.
type Weights struct {
	Config Config
	Prefix string // of the names in Hugging Face's file: "", or its model type's
	// Tokenizer is the files of the model's tokenizer, by the names that they have in Hugging
	// Face's directories; empty if they are not known.
	Tokenizer map[string][]byte
	Differs   string // what other programs compute otherwise; "" if nothing
	// Thresholds are of the exits, above which tokens leave; none of a model without.
	Thresholds []float64

	rows   func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) // appends values of rows [lo, hi), of the weight's type
	types  map[string]DType                                               // by name; those that are not there are float32
	shards *index                                                         // of Hugging Face's files; nil if they are one
	packed bool                                                           // Hugging Face's files hold them in the other way (see family.Packing)
	close  func() error
}

// weights lists all tensors: the model's, and those that its files have besides.
func (w *Weights) weights() []model.Weight {
	return slices.Concat(w.Config.Model.Weights(), w.Config.beside)
}

// dtype returns the type of a weight's values.
func (w *Weights) dtype(p model.Weight) DType {
	if d, ok := w.types[p.Name]; ok {
		return d
	}
	return F32
}

// floats returns values of rows [lo, hi) of a parameter, as float32.
func (w *Weights) floats(p model.Weight, lo, hi int64) ([]byte, error) {
	values, err := w.rows(nil, p, lo, hi)
	if err != nil {
		return nil, err
	}
	return widened(values, w.dtype(p)), nil
}

// read returns all values of a parameter, as float32.
func (w *Weights) read(p model.Weight) ([]byte, error) { return w.floats(p, 0, p.Shape[0]) }

// Read returns all values of a parameter. Goroutines may call it at once.
func (w *Weights) Read(p model.Weight) ([]float32, error) {
	raw, err := w.read(p)
	if err != nil {
		return nil, err
	}
	values := make([]float32, len(raw)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return values, nil
}

// Metadata keys of a dynmo weights file.
const (
	formatKey   = "format"
	configKey   = "config" // the text of config.json
	prefixKey   = "prefix"
	indexKey    = "index"  // the text of model.safetensors.index.json
	packed      = "packed" // under the key of family.Packing
	ownFormat   = "dynmo"
	torchFormat = "pt" // what Hugging Face's loaders want
)

// OpenWeights opens a dynmo weights file: safetensors with dynmo's names, and
// the model's configuration in its metadata.
func OpenWeights(path string) (*Weights, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	w, err := f.Weights()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// Own reports whether the file says that it is a dynmo weights file.
func (f *File) Own() bool { return f.Metadata[formatKey] == ownFormat }

// Weights returns the weights in a dynmo weights file. Errors name the tensor
// that is missing, of another shape, or too many.
func (f *File) Weights() (*Weights, error) {
	if !f.Own() {
		return nil, fmt.Errorf("metadata: %s = %.100q, want %q: not a dynmo weights file", formatKey, f.Metadata[formatKey], ownFormat)
	}
	c, err := parseConfig([]byte(f.Metadata[configKey]))
	if err != nil {
		return nil, fmt.Errorf("metadata: %s: %w", configKey, err)
	}
	w := &Weights{Config: c, Prefix: f.Metadata[prefixKey], types: make(map[string]DType), close: f.Close}
	if prefix := c.form.Prefix; w.Prefix != "" && w.Prefix != prefix {
		return nil, fmt.Errorf("metadata: %s = %.100q, want \"\" or %q", prefixKey, w.Prefix, prefix)
	}
	if p := c.form.Packed; p != nil {
		if form, ok := f.Metadata[p.Key]; ok {
			if w.packed = form == packed; !w.packed {
				return nil, fmt.Errorf("metadata: %s = %.100q, want %q", p.Key, form, packed)
			}
		}
	}
	want := make(map[string][]int64)
	for _, p := range w.weights() {
		want[p.Name] = p.Shape
	}
	tokenizer, tensors, err := f.takeTokenizer()
	if err != nil {
		return nil, err
	}
	w.Tokenizer = tokenizer
	at, err := match(tensors, want)
	if err != nil {
		return nil, err
	}
	if text, ok := f.Metadata[indexKey]; ok {
		if w.shards, err = w.sharded([]byte(text)); err != nil {
			return nil, fmt.Errorf("metadata: %s: %w", indexKey, err)
		}
	}
	for _, t := range tensors {
		w.types[t.Name] = t.DType
	}
	w.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		t := tensors[at[p.Name]]
		row := p.Row() / 4 * t.DType.bytes()
		return f.part(dst, t, lo*row, hi*row)
	}
	return w, nil
}

// match finds each wanted tensor, of a type of weights and the wanted shape, and refuses
// all others. It returns their places in list.
func match(list []Tensor, want map[string][]int64) (map[string]int, error) {
	at := make(map[string]int)
	for i, t := range list {
		shape, ok := want[t.Name]
		switch {
		case !ok:
			return nil, fmt.Errorf("tensor %.100q is no part of the model that the configuration describes", t.Name)
		case typeNames[t.DType] == "" || !slices.Equal(t.Shape, shape):
			return nil, fmt.Errorf("tensor %.100q: %s %v, want %s, %s or %s %v", t.Name, t.DType, t.Shape, F32, bf16, f16, shape)
		}
		at[t.Name] = i
	}
	var missing []string
	for name := range want {
		if _, ok := at[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("tensor %q is missing (%d of %d are)", slices.Min(missing), len(missing), len(want))
	}
	return at, nil
}

// Watch has show called with how many bytes of weights have been read, and how many there are.
func (w *Weights) Watch(show func(done, total int64)) {
	var done atomic.Int64
	total, rows := int64(0), w.rows
	for _, p := range w.weights() {
		total += p.Bytes() / F32.bytes() * w.dtype(p).bytes()
	}
	w.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		values, err := rows(dst, p, lo, hi)
		show(done.Add(int64(len(values)-len(dst))), total)
		return values, err
	}
}

// Close closes the files that the weights lie in.
func (w *Weights) Close() error { return w.close() }

// Write writes a dynmo weights file, with values of the types that they have, and the files of
// the tokenizer.
func (w *Weights) Write(out io.Writer) error {
	metadata := map[string]string{formatKey: ownFormat, configKey: string(w.Config.Text)}
	if w.Prefix != "" {
		metadata[prefixKey] = w.Prefix
	}
	if w.packed {
		metadata[w.Config.form.Packed.Key] = packed
	}
	if w.shards != nil {
		metadata[indexKey] = string(w.shards.text)
	}
	list := w.tokenizerTensors()
	from := make(map[string]model.Weight)
	for _, p := range w.weights() {
		list = append(list, Tensor{Name: p.Name, DType: w.dtype(p), Shape: p.Shape})
		from[p.Name] = p
	}
	return Write(out, metadata, list, w.writeTokenizer(func(out io.Writer, t Tensor) error {
		p := from[t.Name]
		return w.stream(p, 0, p.Shape[0], func(values []byte) error {
			_, err := out.Write(values)
			return err
		})
	}))
}

// stream calls yield with the values of rows of a parameter, about loadBytes at a time. So no
// tensor is whole in memory, except one that needs transposing. The values last until yield
// returns.
func (w *Weights) stream(p model.Weight, first, rows int64, yield func(values []byte) error) error {
	piece := max(1, loadBytes/p.Row())
	if p.Transposed {
		piece = rows
	}
	var values []byte
	for lo := first; lo < first+rows; lo += piece {
		var err error
		if values, err = w.rows(values[:0], p, lo, min(lo+piece, first+rows)); err != nil {
			return err
		}
		if err := yield(values); err != nil {
			return err
		}
	}
	return nil
}

// Derivation makes the weights of a model from those of another.
type Derivation interface {
	// Source returns the weight of the other model whose type a weight takes. A weight that
	// stays is its own.
	Source(p model.Weight) model.Weight
	// Rows appends rows [lo, hi) of a weight that does not stay. read returns the values of
	// a weight of the other model. drawn says that the rows are float32.
	Rows(dst []byte, p model.Weight, lo, hi int64, read func(model.Weight) ([]byte, error)) (rows []byte, drawn bool, err error)
}

// Derive returns the weights of another model, with the tokenizer of this. They are made from
// w when they are asked for.
func (w *Weights) Derive(c model.Config, by Derivation) (*Weights, error) {
	made := &Weights{Config: EndingConfig(c, w.Config.End), Tokenizer: w.Tokenizer, types: make(map[string]DType), close: w.close}
	made.Prefix = made.Config.form.Prefix
	var first DType // of the weights that do not stay
	for _, p := range c.Weights() {
		from := by.Source(p)
		made.types[p.Name] = w.dtype(from)
		if first == "" && from.Name != p.Name {
			first = w.dtype(from)
		}
	}
	read := func(p model.Weight) ([]byte, error) { return w.rows(nil, p, 0, p.Shape[0]) }
	made.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		from := by.Source(p)
		if from.Name == p.Name {
			return w.rows(dst, p, lo, hi)
		}
		rows, drawn, err := by.Rows(nil, p, lo, hi, read)
		if err == nil && drawn {
			rows, err = convert(rows, F32, w.dtype(from))
		}
		return append(dst, rows...), err
	}
	var err error
	made.Config.Text, err = made.Config.stored(first)
	return made, err
}
