package checkpoint

import (
	"fmt"
	"slices"

	"dynmo/src/model"
)

// Weights is the weights of a whole model, wherever they lie.
type Weights struct {
	Config Config
	Prefix string // of the names in Hugging Face's file: "" or "transformer."

	rows  func(p parameter, lo, hi int64) ([]byte, error) // values of rows [lo, hi), as float32
	close func() error
}

// read returns all values of a parameter.
func (w *Weights) read(p parameter) ([]byte, error) { return w.rows(p, 0, p.shape[0]) }

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
	if prefix != "" && prefix != transformerPrefix {
		return nil, fmt.Errorf("metadata: %s = %.100q, want \"\" or %q", prefixKey, prefix, transformerPrefix)
	}
	want := make(map[string][]int64)
	for _, p := range parameters(c.Model) {
		want[p.name] = p.shape
	}
	at, err := match(f.Tensors, want)
	if err != nil {
		return nil, err
	}
	return &Weights{Config: c, Prefix: prefix, close: f.Close,
		rows: func(p parameter, lo, hi int64) ([]byte, error) {
			return f.part(f.Tensors[at[p.name]], lo*p.row(), hi*p.row())
		}}, nil
}

// match finds each wanted tensor, of float32 and the wanted shape, and refuses
// all others. It returns their places in list.
func match(list []Tensor, want map[string][]int64) (map[string]int, error) {
	at := make(map[string]int)
	for i, t := range list {
		shape, ok := want[t.Name]
		switch {
		case !ok:
			return nil, fmt.Errorf("tensor %.100q is no part of the model that the configuration describes", t.Name)
		case t.DType != F32 || !slices.Equal(t.Shape, shape):
			return nil, fmt.Errorf("tensor %.100q: %s %v, want %s %v", t.Name, t.DType, t.Shape, F32, shape)
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
func (w *Weights) Write(path string) error {
	metadata := map[string]string{formatKey: ownFormat, configKey: string(w.Config.Text)}
	if w.Prefix != "" {
		metadata[prefixKey] = w.Prefix
	}
	own := func(p parameter) Tensor { return Tensor{Name: p.name, DType: F32, Shape: p.shape} }
	return w.safetensors(path, metadata, own, w.read)
}

// safetensors writes each parameter as the tensor that as makes of it, with
// the values of values.
func (w *Weights) safetensors(path string, metadata map[string]string, as func(parameter) Tensor, values func(parameter) ([]byte, error)) error {
	var list []Tensor
	source := make(map[string]parameter)
	for _, p := range parameters(w.Config.Model) {
		t := as(p)
		list = append(list, t)
		source[t.Name] = p
	}
	return Write(path, metadata, list, func(t Tensor) ([]byte, error) { return values(source[t.Name]) })
}

// Fits reports how a model differs in shape from the one whose weights these
// are. Grain, seed and initialisation do not matter.
func (w *Weights) Fits(c model.Config) error {
	have := w.Config.Model
	for _, d := range []struct {
		name       string
		have, want int
	}{
		{"blocks", have.Blocks, c.Blocks}, {"hidden", have.Hidden, c.Hidden}, {"heads", have.Heads, c.Heads},
		{"sequence", have.Sequence, c.Sequence}, {"vocab", have.Vocab, c.Vocab},
	} {
		if d.have != d.want {
			return fmt.Errorf("model.%s is %d, the weights are of a model with %d", d.name, d.want, d.have)
		}
	}
	if have.Tied != c.Tied {
		return fmt.Errorf("the model's head is tied: %v; that of the weights: %v", c.Tied, have.Tied)
	}
	return nil
}
