package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"

	"dynmo/src/model"
)

// Weights is the weights of a whole model, in files or in layers.
type Weights struct {
	Config Config
	Prefix string // prefix of names in Hugging Face's file: "" or that of the model type
	// Tokenizer has the files of the model's tokenizer, by their names in Hugging Face's
	// directories; empty if they are not known.
	Tokenizer map[string][]byte
	// Generation is the text of generation_config.json that came with the weights; nil if none did.
	Generation []byte
	// Doubts say what the files have that was not taken at its word.
	Doubts  []string
	Differs string // description of what other programs compute differently; "" for nothing
	// Thresholds are the thresholds of the exits; tokens above leave. Empty for a model without
	// exits.
	Thresholds []float64

	rows   func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) // appends values of rows [lo, hi), of the weight's type
	types  map[string]DType                                               // by name; absent names are float32
	shards *index                                                         // index of Hugging Face's files; nil for a single file
	packed bool                                                           // whether the weights are packed in Hugging Face's files (see family.Packing)
	close  func() error
}

// weights lists all tensors: those of the model, and additional ones of its files.
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

// Read returns all values of a parameter. Several goroutines may call it at the same time.
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
	indexKey    = "index"      // the text of model.safetensors.index.json
	generateKey = "generation" // the text of generation_config.json
	packed      = "packed"     // value for the key of family.Packing
	ownFormat   = "dynmo"
	torchFormat = "pt" // the value that Hugging Face's loaders need
)

// OpenWeights opens a dynmo weights file: a safetensors file with dynmo's names, and with the
// model's configuration in its metadata.
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

// Weights returns the weights in a dynmo weights file. Errors name a tensor that is missing, has
// another shape, or is unknown.
func (f *File) Weights() (*Weights, error) {
	if !f.Own() {
		return nil, fmt.Errorf("metadata: %s = %.100q, want %q: not a dynmo weights file; dynmo ckpt import makes one of a Hugging Face directory", formatKey, f.Metadata[formatKey], ownFormat)
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
	if text, ok := f.Metadata[generateKey]; ok {
		w.Generation = []byte(text)
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

// match finds each wanted tensor in list and returns its index by name. Errors: a tensor is
// missing, has no type of weights or another shape, or is not wanted.
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

// Watch makes every read call show, with the bytes of weights that have been read and their total.
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

// Close closes the files of the weights.
func (w *Weights) Close() error { return w.close() }

// Write writes a dynmo weights file, with unchanged types, and with the files of the tokenizer.
func (w *Weights) Write(out io.Writer) error {
	metadata := map[string]string{formatKey: ownFormat, configKey: string(w.Config.Text)}
	if w.Prefix != "" {
		metadata[prefixKey] = w.Prefix
	}
	if w.Generation != nil {
		metadata[generateKey] = string(w.Generation)
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
// tensor is in memory as a whole, except one that is transposed. The values are valid until yield
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
