package checkpoint

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"dynmo/src/model"
	"dynmo/src/replace"
)

// piece is a tensor of Hugging Face's file, which is rows of a weight from the first on.
type piece struct {
	Tensor
	weight model.Weight
	first  int64
}

// pieces returns the tensors that a parameter is in Hugging Face's file, of its own type.
func (w *Weights) pieces(p model.Weight) []piece {
	split := p.Split
	if split == nil {
		split = []model.Rows{{HuggingFace: p.HuggingFace, Rows: p.Shape[0]}}
	}
	prefix := w.Prefix
	if p.Outside {
		prefix = ""
	}
	var list []piece
	first := int64(0)
	for _, rows := range split {
		shape := append([]int64{rows.Rows}, p.Shape[1:]...)
		if p.Transposed {
			slices.Reverse(shape)
		}
		list = append(list, piece{Tensor{Name: prefix + rows.HuggingFace, DType: w.dtype(p), Shape: shape}, p, first})
		first += rows.Rows
	}
	return list
}

// allPieces returns the tensors of the whole model in Hugging Face's files.
func (w *Weights) allPieces() (list []piece) {
	for _, p := range w.Config.Model.Weights() {
		list = append(list, w.pieces(p)...)
	}
	return list
}

// WriteHuggingFace writes config.json, generation_config.json and model.safetensors, or
// its shards if the weights came from some, of type d, or of the types that they have if
// it is "", to a directory (see replace.Directory), and more files, by name. A model
// that the reference implementation wrote, without buffers or a copy of a tied head, comes
// out as it was, byte for byte, if its types stay.
func (w *Weights) WriteHuggingFace(dir string, d DType, more map[string][]byte) error {
	text, err := w.Config.stored(d)
	if err != nil {
		return err
	}
	generation, err := w.Config.generation()
	if err != nil {
		return err
	}
	files := map[string][]byte{ConfigFile: text, generationFile: generation}
	maps.Copy(files, more)
	byFile := make(map[string][]piece)
	total := int64(0)
	for _, t := range w.allPieces() {
		if d != "" {
			t.DType = d
		}
		name := w.shards.file(t.Name)
		byFile[name] = append(byFile[name], t)
		total += t.weight.Row() / 4 * t.rows() * t.DType.bytes()
	}
	if w.shards != nil {
		files[indexFile] = w.shards.sized(total)
	}
	return replace.Directory(dir, func(dir string) error {
		for _, name := range slices.Sorted(maps.Keys(byFile)) {
			if err := replace.Write(filepath.Join(dir, name), func(out io.Writer) error { return w.writePieces(out, byFile[name]) }); err != nil {
				return err
			}
		}
		var err error
		for name, text := range files {
			err = cmp.Or(err, replace.Write(filepath.Join(dir, name), func(out io.Writer) error {
				_, err := out.Write(text)
				return err
			}))
		}
		return err
	})
}

// rows returns how many rows of its weight a piece is.
func (t piece) rows() int64 {
	if t.weight.Transposed {
		return t.Shape[1]
	}
	return t.Shape[0]
}

// writePieces writes a file of Hugging Face's.
func (w *Weights) writePieces(out io.Writer, list []piece) error {
	byName := make(map[string]piece)
	var tensors []Tensor
	for _, t := range list {
		byName[t.Name] = t
		tensors = append(tensors, t.Tensor)
	}
	return Write(out, map[string]string{formatKey: torchFormat}, tensors, func(out io.Writer, t Tensor) error {
		p := byName[t.Name]
		from := w.dtype(p.weight)
		return w.stream(p.weight, p.first, p.rows(), func(values []byte) error {
			if p.weight.Transposed {
				values = transpose(values, t.Shape[1], t.Shape[0], from.bytes())
			}
			values, err := convert(values, from, t.DType)
			if err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
			_, err = out.Write(values)
			return err
		})
	})
}

// transpose returns the transpose of a (rows, cols) matrix of values of so many bytes.
func transpose(values []byte, rows, cols, size int64) []byte {
	t := make([]byte, len(values))
	for r := range rows {
		for c := range cols {
			copy(t[size*(c*rows+r):][:size], values[size*(r*cols+c):])
		}
	}
	return t
}
