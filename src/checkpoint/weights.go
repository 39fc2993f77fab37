package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"dynmo/src/model"
)

// Weights is the weights of a whole model, wherever they lie.
type Weights struct {
	Config Config
	Prefix string // of the names in Hugging Face's file: "" or Transformer

	rows  func(p model.Weight, lo, hi int64) ([]byte, error) // values of rows [lo, hi), as float32
	close func() error
}

// read returns all values of a parameter.
func (w *Weights) read(p model.Weight) ([]byte, error) { return w.rows(p, 0, p.Shape[0]) }

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
	c, err := ParseConfig([]byte(f.Metadata[configKey]))
	if err != nil {
		return nil, fmt.Errorf("metadata: %s: %w", configKey, err)
	}
	prefix := f.Metadata[prefixKey]
	if prefix != "" && prefix != Transformer {
		return nil, fmt.Errorf("metadata: %s = %.100q, want \"\" or %q", prefixKey, prefix, Transformer)
	}
	want := make(map[string][]int64)
	for _, p := range c.Model.Weights() {
		want[p.Name] = p.Shape
	}
	at, err := match(f.Tensors, want)
	if err != nil {
		return nil, err
	}
	return &Weights{Config: c, Prefix: prefix, close: f.Close,
		rows: func(p model.Weight, lo, hi int64) ([]byte, error) {
			return f.floats(f.Tensors[at[p.Name]], lo*p.Row()/4, hi*p.Row()/4)
		}}, nil
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
			return nil, fmt.Errorf("tensor %.100q: %s %v, want %s, %s or %s %v", t.Name, t.DType, t.Shape, F32, BF16, F16, shape)
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

// Close closes the files that the weights lie in.
func (w *Weights) Close() error { return w.close() }

// Write writes a dynmo weights file.
func (w *Weights) Write(out io.Writer) error {
	metadata := map[string]string{formatKey: ownFormat, configKey: string(w.Config.Text)}
	if w.Prefix != "" {
		metadata[prefixKey] = w.Prefix
	}
	own := func(p model.Weight) Tensor { return Tensor{Name: p.Name, DType: F32, Shape: p.Shape} }
	return w.safetensors(out, metadata, own, w.read)
}

// safetensors writes each parameter as the tensor that as makes of it, with
// the values of values.
func (w *Weights) safetensors(out io.Writer, metadata map[string]string, as func(model.Weight) Tensor, values func(model.Weight) ([]byte, error)) error {
	var list []Tensor
	source := make(map[string]model.Weight)
	for _, p := range w.Config.Model.Weights() {
		t := as(p)
		list = append(list, t)
		source[t.Name] = p
	}
	return Write(out, metadata, list, func(t Tensor) ([]byte, error) { return values(source[t.Name]) })
}
