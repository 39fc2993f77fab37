package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/model"
)

// Files of a Hugging Face directory.
const (
	ConfigFile     = "config.json"
	generationFile = "generation_config.json"
	modelFile      = "model.safetensors"
	indexFile      = modelFile + ".index.json"
)

// outputMatrix is the name of the head. Many programs write it even if the head is tied to the
// embedding.
const outputMatrix = "lm_head.weight"

// maxConfig is the longest config.json that is read, in bytes: hundreds of times the length of real
// ones.
const maxConfig = 1 << 20

// OpenHuggingFace opens a directory with config.json and model.safetensors, or with the shards that
// model.safetensors.index.json names. All names of tensors may begin with the prefix of the model
// type, for example "transformer.". Buffers in older files, for example attn.bias, are skipped. The
// weights include generation_config.json and the files of the tokenizer in the directory.
func OpenHuggingFace(dir string) (*Weights, error) {
	source, err := files.Read(filepath.Join(dir, ConfigFile), maxConfig)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ConfigFile), err)
	}
	if refuses := c.form.Refuses; refuses != nil {
		if err := refuses(c.Model); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ConfigFile), err)
		}
	}
	files, shards, err := openModel(dir)
	if err != nil {
		return nil, err
	}
	w, err := fromFiles(c, files)
	if err != nil {
		closeAll(files)
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	w.keep(shards)
	if shards != nil && shards.note != "" {
		w.Doubts = append(w.Doubts, fmt.Sprintf("%s: %s", filepath.Join(dir, indexFile), shards.note))
	}
	if w.Tokenizer, err = data.ReadTokenizer(dir); err != nil {
		closeAll(files)
		return nil, err
	}
	if w.Generation, err = readGeneration(dir); err != nil {
		closeAll(files)
		return nil, err
	}
	return w, nil
}

// openModel opens the file or all shards of a model. Shards have an index.
func openModel(dir string) ([]*File, *index, error) {
	f, err := Open(filepath.Join(dir, modelFile))
	if err == nil {
		return []*File{f}, nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	path := filepath.Join(dir, indexFile)
	source, indexErr := files.Read(path, maxHeader)
	if errors.Is(indexErr, fs.ErrNotExist) {
		return nil, nil, noModel(dir)
	}
	if indexErr != nil {
		return nil, nil, indexErr
	}
	x, err := parseIndex(source)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	files, err := x.open(dir)
	return files, x, err
}

// noModel returns the error of a directory without safetensors. It names files of weights in other
// formats.
func noModel(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, end := range []string{".bin", ".bin.index.json", ".pth", ".pt", ".gguf", ".h5", ".msgpack", ".safetensors"} {
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), end) {
				return fmt.Errorf("%s: weights in another form: want %s, or %s with its shards, as save_pretrained of Transformers writes them", filepath.Join(dir, e.Name()), modelFile, indexFile)
			}
		}
	}
	return fmt.Errorf("%s: %w: want it, or %s with its shards", filepath.Join(dir, modelFile), fs.ErrNotExist, indexFile)
}

func closeAll(files []*File) error {
	var all []error
	for _, f := range files {
		all = append(all, f.Close())
	}
	return errors.Join(all...)
}

// keep stores an index in the weights, without tensors that the model does not have.
func (w *Weights) keep(shards *index) {
	if shards == nil {
		return
	}
	files := make(map[string]string)
	for _, t := range w.allPieces() {
		files[t.Name] = shards.files[t.Name]
	}
	w.shards = shards
	if !maps.Equal(files, shards.files) {
		w.shards = newIndex(files)
	}
}

// sharded returns the index stored in a weights file. The index must name exactly the tensors of
// the model.
func (w *Weights) sharded(text []byte) (*index, error) {
	x, err := parseIndex(text)
	if err != nil {
		return nil, err
	}
	have := make(map[string]bool)
	for _, t := range w.allPieces() {
		if have[t.Name] = true; x.files[t.Name] == "" {
			return nil, fmt.Errorf("weight_map does not name tensor %q", t.Name)
		}
	}
	if len(x.files) != len(have) {
		return nil, fmt.Errorf("weight_map names %d tensors, the model has %d", len(x.files), len(have))
	}
	return x, nil
}

// held is a tensor and its file.
type held struct {
	Tensor
	file *File
}

// fromFiles returns the weights in files with Hugging Face's names.
func fromFiles(c Config, files []*File) (*Weights, error) {
	is := c.form
	w := &Weights{Config: c, types: make(map[string]DType), close: func() error { return closeAll(files) }}
	all := make(map[string]held)
	var list []Tensor
	for _, f := range files {
		for _, t := range f.Tensors {
			if slices.ContainsFunc(is.Buffers, func(end string) bool { return strings.HasSuffix(t.Name, end) }) {
				continue
			}
			w.packed = w.packed || is.Packed != nil && strings.HasSuffix(t.Name, is.Packed.End)
			all[t.Name] = held{t, f}
			list = append(list, t)
		}
	}
	if _, ok := all[is.Prefix+is.Token]; ok {
		w.Prefix = is.Prefix
	}
	if head, ok := all[outputMatrix]; c.Model.Tied && ok {
		if err := copied(head, all, w.Prefix+is.Token); err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(t Tensor) bool { return t.Name == outputMatrix })
	}
	want := make(map[string][]int64)
	for _, t := range w.allPieces() {
		want[t.Name] = t.Shape
	}
	if _, err := match(list, want); err != nil {
		return nil, c.assumed(err)
	}
	from := make(map[string][]piece)
	for _, p := range w.weights() {
		from[p.Name] = w.pieces(p)
		w.types[p.Name] = common(from[p.Name], all)
	}
	w.rows = func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		return appendRows(dst, from[p.Name], all, w.types[p.Name], lo, hi)
	}
	return w, nil
}

// common returns the type of all pieces of a weight, or float32 if their types differ.
func common(list []piece, all map[string]held) DType {
	d := all[list[0].Name].DType
	for _, t := range list[1:] {
		if all[t.Name].DType != d {
			return F32
		}
	}
	return d
}

// appendRows appends the values of rows [lo, hi) of a weight, of type d, from its pieces.
func appendRows(dst []byte, list []piece, all map[string]held, d DType, lo, hi int64) (_ []byte, err error) {
	for _, t := range list {
		from, to, h := max(lo, t.first)-t.first, min(hi, t.first+t.rows)-t.first, all[t.Name]
		switch {
		case from >= to:
		case h.DType == d:
			dst, err = h.rows(dst, t, from, to)
		default:
			var part []byte
			part, err = h.rows(nil, t, from, to)
			dst = append(dst, widened(part, h.DType)...)
		}
		if err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// rows appends the stored values of rows [lo, hi) of a piece. If Hugging Face stores the transpose,
// these are columns of the stored matrix.
func (h held) rows(dst []byte, t piece, lo, hi int64) ([]byte, error) {
	row := t.weight.Row() / 4 * h.DType.bytes()
	if !t.weight.Transposed {
		return h.file.part(dst, h.Tensor, (t.at+lo)*row, (t.at+hi)*row)
	}
	values, err := h.file.Read(h.Tensor)
	if err != nil {
		return nil, err
	}
	return append(dst, transpose(values, h.Shape[0], h.Shape[1], h.DType.bytes())[lo*row:hi*row]...), nil
}

// copied returns an error unless the tensor named `of` exists and equals tensor a bit by bit.
func copied(a held, all map[string]held, of string) error {
	b, ok := all[of]
	if !ok {
		return fmt.Errorf("tensor %q is missing", of)
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("tensor %q %s tensor %q, yet the head is tied: want the two equal, or tie_word_embeddings false in %s",
			a.Name, fmt.Sprintf(format, args...), b.Name, ConfigFile)
	}
	if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) {
		return fail("is %s %v, unlike the %s %v of", a.DType, a.Shape, b.DType, b.Shape)
	}
	for lo := int64(0); lo < a.Bytes(); lo += loadBytes {
		hi := min(lo+loadBytes, a.Bytes())
		x, err := a.file.part(nil, a.Tensor, lo, hi)
		if err != nil {
			return err
		}
		y, err := b.file.part(nil, b.Tensor, lo, hi)
		if err != nil {
			return err
		}
		for k := range x {
			if x[k] != y[k] {
				return fail("differs at byte %d of its values from", lo+int64(k))
			}
		}
	}
	return nil
}
