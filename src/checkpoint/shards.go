package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// As makes the weights those of a model type: of one with experts Mixtral or LLaMA-MoE, else
// its own, which "" stands for. Errors say what of the model the type cannot describe.
func (w *Weights) As(name string) error {
	own, c := w.Config.kind, w.Config.Model
	if name == "" {
		name = own.name
	}
	want := []string{own.name}
	if model.KindOf[moe.Experts](c).Count > 0 {
		want = []string{mixtralType, llamaMoEType}
	}
	if !slices.Contains(want, name) {
		return fmt.Errorf("model type %.100q: want %s for this model", name, strings.Join(want, " or "))
	}
	is := kinds[slices.IndexFunc(kinds, func(is kind) bool { return is.name == name })]
	if is.refuses != nil {
		if err := is.refuses(c); err != nil {
			return err
		}
	}
	if name != own.name {
		w.Config, w.Prefix, w.packed, w.shards = is.config(c, w.Config.End), is.prefix, false, nil
	}
	return nil
}

// Shard has WriteHuggingFace with type d write files of at most so many bytes of values, in
// the order of the model; a larger tensor has one of its own. What fits in one file is one.
func (w *Weights) Shard(bytes int64, d DType) {
	type file struct {
		tensors []string
		bytes   int64
	}
	sizes := make(map[string]int64)
	var names []string
	for _, t := range w.allPieces() {
		if sizes[t.Name] == 0 {
			names = append(names, t.Name)
		}
		sizes[t.Name] += t.bytes(d)
	}
	files := []file{{}}
	for _, name := range names {
		last := &files[len(files)-1]
		if last.bytes > 0 && last.bytes+sizes[name] > bytes {
			files = append(files, file{})
			last = &files[len(files)-1]
		}
		last.tensors, last.bytes = append(last.tensors, name), last.bytes+sizes[name]
	}
	w.shards = nil
	if len(files) == 1 {
		return
	}
	home := make(map[string]string)
	for i, f := range files {
		for _, name := range f.tensors {
			home[name] = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(files))
		}
	}
	w.shards = newIndex(home)
}
