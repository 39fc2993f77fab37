package weights

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"dynmo/src/data"
	"dynmo/src/files"
)

// WriteHuggingFace writes config.json, generation_config.json and model.safetensors to a directory
// (see files.Directory), and the files in `more`, by name. Weights that came from shards are
// written as shards. d is the type of the values; "" keeps their types. Weights of another model in
// the directory are removed. If this model has a tokenizer, the other model's tokenizer is removed
// too. A model of the reference implementation is written byte for byte as it was read, if its
// types stay. It must have no buffers and no copy of a tied head. Tensors that other programs do
// not know are written to a separate file. If other programs cannot compute the model, the model in
// plain PyTorch is written beside it.
func (w *Weights) WriteHuggingFace(dir string, d DType, more map[string][]byte) error {
	text, err := w.Config.stored(d)
	if err != nil {
		return err
	}
	generation := w.Generation
	if generation == nil {
		if generation, err = w.Config.generation(); err != nil {
			return err
		}
	}
	texts := map[string][]byte{ConfigFile: text, generationFile: generation}
	maps.Copy(texts, more)
	byFile := make(map[string][]piece)
	total := int64(0)
	for _, t := range w.allPieces() {
		total += t.bytes(d)
		if d != "" {
			t.DType = d
		}
		name := w.shards.file(t.Name)
		byFile[name] = append(byFile[name], t)
	}
	if w.shards != nil {
		texts[indexFile] = w.shards.sized(total)
	}
	extras := w.extras(d)
	if w.alone() {
		beside, err := w.beside(extras)
		if err != nil {
			return err
		}
		maps.Copy(texts, beside)
	}
	return files.Directory(dir, func(dir string) error {
		if len(extras) > 0 {
			if err := w.writeExtras(filepath.Join(dir, extrasFile), extras); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(byFile)) {
			if err := files.Write(filepath.Join(dir, name), func(out io.Writer) error { return w.writePieces(out, byFile[name]) }); err != nil {
				return err
			}
		}
		var err error
		for name, text := range texts {
			err = cmp.Or(err, files.WriteText(filepath.Join(dir, name), string(text)))
		}
		return err
	}, staleBeside(texts))
}

// staleBeside returns a function that reports whether a file of another model must be removed from
// beside the given files. Readers would take such a file for one of this model.
func staleBeside(texts map[string][]byte) func(name string) bool {
	tokenizer := slices.ContainsFunc(slices.Collect(maps.Keys(texts)), data.IsTokenizerFile)
	return func(name string) bool {
		own := []string{modelFile, indexFile, extrasFile, namesFile, kindsFile, referenceFile}
		return slices.Contains(own, name) || shardPattern.MatchString(name) || tokenizer && data.IsTokenizerFile(name)
	}
}

// writePieces writes the pieces as a safetensors file with Hugging Face's names.
func (w *Weights) writePieces(out io.Writer, list []piece) error {
	byName := make(map[string][]piece)
	var tensors []Tensor
	for _, t := range list {
		if byName[t.Name] == nil {
			tensors = append(tensors, t.Tensor)
		}
		byName[t.Name] = append(byName[t.Name], t)
	}
	return Write(out, map[string]string{formatKey: torchFormat}, tensors, func(out io.Writer, t Tensor) error {
		for _, p := range byName[t.Name] {
			if err := w.writePiece(out, p, t.DType); err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		}
		return nil
	})
}

// writePiece writes the values of a piece as type d.
func (w *Weights) writePiece(out io.Writer, p piece, d DType) error {
	from := w.dtype(p.weight)
	return w.stream(p.weight, p.first, p.rows, func(values []byte) error {
		if p.weight.Transposed {
			values = transpose(values, p.rows, p.weight.Row()/4, from.bytes())
		}
		values, err := convert(values, from, d)
		if err == nil {
			_, err = out.Write(values)
		}
		return err
	})
}

// transpose returns the transpose of a (rows, cols) matrix whose values have `size` bytes.
func transpose(values []byte, rows, cols, size int64) []byte {
	t := make([]byte, len(values))
	for r := range rows {
		for c := range cols {
			copy(t[size*(c*rows+r):][:size], values[size*(r*cols+c):])
		}
	}
	return t
}
