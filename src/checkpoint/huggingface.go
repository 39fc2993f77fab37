package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/input"
	"dynmo/src/model"
	"dynmo/src/replace"
)

// Files of a Hugging Face directory.
const (
	ConfigFile     = "config.json"
	generationFile = "generation_config.json"
	modelFile      = "model.safetensors"
	indexFile      = modelFile + ".index.json"
)

// Transformer is what the names of tensors begin with where a model with its head wrote
// them, as GPT2LMHeadModel.
const Transformer = "transformer."

// Names of the embedding and of the head, which many programs write even where the two
// are one.
const (
	tokenMatrix  = "wte.weight"
	outputMatrix = "lm_head.weight"
)

// maxConfig is the longest config.json that is read, in bytes: hundreds of
// times what real ones have.
const maxConfig = 1 << 20

// OpenHuggingFace opens a directory with config.json and model.safetensors, or
// the shards that model.safetensors.index.json names. Names of tensors may all
// begin with "transformer."; the causal masks that older files hold as
// attn.bias and attn.masked_bias are skipped.
func OpenHuggingFace(dir string) (*Weights, error) {
	source, err := input.Read(filepath.Join(dir, ConfigFile), maxConfig)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ConfigFile), err)
	}
	files, err := openModel(dir)
	if err != nil {
		return nil, err
	}
	w, err := fromGPT2(c, files)
	if err != nil {
		closeAll(files)
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return w, nil
}

// openModel opens the file or all shards of a model.
func openModel(dir string) ([]*File, error) {
	f, err := Open(filepath.Join(dir, modelFile))
	if err == nil {
		return []*File{f}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	index := filepath.Join(dir, indexFile)
	source, indexErr := input.Read(index, maxHeader)
	if errors.Is(indexErr, fs.ErrNotExist) {
		return nil, err
	}
	if indexErr != nil {
		return nil, indexErr
	}
	names, err := shards(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", index, err)
	}
	return openShards(dir, names)
}

// shards returns the files that the index of a sharded model names.
func shards(index []byte) ([]string, error) {
	var names []string
	err := value{json: index}.members(func(key string, v value) error {
		if key != "weight_map" {
			return nil
		}
		return v.members(func(_ string, v value) error {
			name, err := v.text()
			if err == nil && (!filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`)) {
				err = v.fail("file name %.100q: want one without directories", name)
			}
			names = append(names, name)
			return err
		})
	})
	slices.Sort(names)
	names = slices.Compact(names)
	if err == nil && len(names) == 0 {
		err = errors.New("weight_map is missing or empty")
	}
	return names, err
}

// openShards opens files within dir; a link that leads out of it is refused.
func openShards(dir string, names []string) (files []*File, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, name := range names {
		f, size, err := input.RegularIn(root, name, input.Unbound)
		var s *File
		if err == nil {
			s, err = opened(filepath.Join(dir, name), f, size)
		}
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, s)
	}
	return files, nil
}

func closeAll(files []*File) error {
	var all []error
	for _, f := range files {
		all = append(all, f.Close())
	}
	return errors.Join(all...)
}

// fromGPT2 returns the weights that lie in files under Hugging Face's names.
func fromGPT2(c Config, files []*File) (*Weights, error) {
	w := &Weights{Config: c, close: func() error { return closeAll(files) }}
	var list []Tensor
	var home []*File // of each of list
	seen := make(map[string]bool)
	for _, f := range files {
		for _, t := range f.Tensors {
			if seen[t.Name] {
				return nil, fmt.Errorf("tensor %.100q is in two files", t.Name)
			}
			seen[t.Name] = true
			if strings.HasSuffix(t.Name, ".attn.bias") || strings.HasSuffix(t.Name, ".attn.masked_bias") {
				continue
			}
			list, home = append(list, t), append(home, f)
		}
	}
	if seen[Transformer+tokenMatrix] {
		w.Prefix = Transformer
	}
	want := make(map[string][]int64)
	for _, p := range c.Model.Weights() {
		t := w.gpt2(p)
		want[t.Name] = t.Shape
	}
	if i := slices.IndexFunc(list, func(t Tensor) bool { return t.Name == outputMatrix }); c.Model.Tied && i >= 0 {
		if err := copied(list, home, w.Prefix+tokenMatrix, i); err != nil {
			return nil, err
		}
		list, home = slices.Delete(list, i, i+1), slices.Delete(home, i, i+1)
	}
	at, err := match(list, want)
	if err != nil {
		return nil, err
	}
	w.rows = func(p model.Weight, lo, hi int64) ([]byte, error) {
		t := w.gpt2(p)
		i := at[t.Name]
		if !p.Transposed {
			return home[i].floats(list[i], lo*p.Row()/4, hi*p.Row()/4)
		}
		values, err := home[i].floats(list[i], 0, p.Bytes()/4)
		if err != nil {
			return nil, err
		}
		return transpose(values, t.Shape[0], t.Shape[1])[lo*p.Row() : hi*p.Row()], nil
	}
	return w, nil
}

// copied returns an error unless the tensor with the name of is in list, and tensor i is
// equal to it bit by bit.
func copied(list []Tensor, home []*File, of string, i int) error {
	j := slices.IndexFunc(list, func(t Tensor) bool { return t.Name == of })
	if j < 0 {
		return fmt.Errorf("tensor %q is missing", of)
	}
	a, b := list[i], list[j]
	fail := func(format string, args ...any) error {
		return fmt.Errorf("tensor %q %s tensor %q, yet the head is tied: want the two equal, or tie_word_embeddings false in %s",
			a.Name, fmt.Sprintf(format, args...), b.Name, ConfigFile)
	}
	if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) {
		return fail("is %s %v, unlike the %s %v of", a.DType, a.Shape, b.DType, b.Shape)
	}
	for lo := int64(0); lo < a.Bytes(); lo += loadBytes {
		hi := min(lo+loadBytes, a.Bytes())
		x, err := home[i].part(a, lo, hi)
		if err != nil {
			return err
		}
		y, err := home[j].part(b, lo, hi)
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

// gpt2 returns the tensor that a parameter is in Hugging Face's file.
func (w *Weights) gpt2(p model.Weight) Tensor {
	t := Tensor{Name: w.Prefix + p.HuggingFace, DType: F32, Shape: p.Shape}
	if p.Outside {
		t.Name = p.HuggingFace
	}
	if p.Transposed {
		t.Shape = []int64{p.Shape[1], p.Shape[0]}
	}
	return t
}

// WriteHuggingFace writes config.json, generation_config.json and model.safetensors, of
// F32 or BF16, to a directory (see replace.Directory), and more files, by name. A model
// that was one file of float32 without mask buffers, written by the reference
// implementation, comes out as it was, byte for byte, if it is of F32 and its
// configuration names no other type.
func (w *Weights) WriteHuggingFace(dir string, d DType, more map[string][]byte) error {
	text, err := w.Config.stored(d)
	if err != nil {
		return err
	}
	as := func(p model.Weight) Tensor {
		t := w.gpt2(p)
		t.DType = d
		return t
	}
	values := func(p model.Weight) ([]byte, error) {
		v, err := w.read(p)
		if err == nil && p.Transposed {
			v = transpose(v, p.Shape[0], p.Shape[1])
		}
		return d.as(v), err
	}
	return replace.Directory(dir, func(dir string) error {
		err := replace.Write(filepath.Join(dir, modelFile), func(out io.Writer) error {
			return w.safetensors(out, map[string]string{formatKey: torchFormat}, as, values)
		})
		files := map[string][]byte{ConfigFile: text, generationFile: w.Config.generation()}
		maps.Copy(files, more)
		for name, text := range files {
			err = cmp.Or(err, replace.Write(filepath.Join(dir, name), func(out io.Writer) error {
				_, err := out.Write(text)
				return err
			}))
		}
		return err
	})
}

// transpose returns the transpose of a (rows, cols) matrix of float32.
func transpose(values []byte, rows, cols int64) []byte {
	t := make([]byte, len(values))
	for r := range rows {
		for c := range cols {
			copy(t[4*(c*rows+r):][:4], values[4*(r*cols+c):])
		}
	}
	return t
}
