package weights

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/model/family"
)

// As changes the model type of the weights to another type that can describe the model. "" keeps
// the type. An error says which part of the model the type cannot describe.
func (w *Weights) As(name string) error {
	own, c := w.Config.form, w.Config.Model
	list := family.FormsOf(c).List
	i := slices.IndexFunc(list, func(f family.Form) bool { return f.Name == cmp.Or(name, own.Name) })
	if i < 0 {
		var want []string
		for _, f := range list {
			want = append(want, f.Name)
		}
		return fmt.Errorf("model type %.100q: want %s for this model", name, strings.Join(want, " or "))
	}
	is := list[i]
	if is.Refuses != nil {
		if err := is.Refuses(c); err != nil {
			return err
		}
	}
	if is.Name != own.Name {
		begin, ok := w.Config.members()[beginKey]
		w.Config, w.Prefix, w.packed, w.shards = configOf(is, c, w.Config.End, w.Config.source), is.Prefix, false, nil
		if ok {
			w.Config = w.Config.beginning(string(begin.JSON))
		}
	}
	return nil
}

// Shard divides the weights into files for WriteHuggingFace with type d. Each file has at most
// `bytes` bytes of values, in the order of the model. A larger tensor gets a file of its own.
// Weights that fit into one file are not divided.
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
