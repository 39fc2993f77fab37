package weights

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"dynmo/src/data"
)

// u8 is the type of tensors that have no weights but bytes.
const u8 DType = "U8"

// tokenizerPrefix is the prefix of tensors in a weights file that contain the files of a tokenizer,
// as bytes.
const tokenizerPrefix = "tokenizer/"

// tokenizerTensors returns the tensors of the tokenizer's files.
func (w *Weights) tokenizerTensors() (list []Tensor) {
	for _, name := range slices.Sorted(maps.Keys(w.Tokenizer)) {
		list = append(list, Tensor{Name: tokenizerPrefix + name, DType: u8, Shape: []int64{int64(len(w.Tokenizer[name]))}})
	}
	return list
}

// writeTokenizer returns a function that writes the tensors of tokenizer files. It calls values for
// other tensors.
func (w *Weights) writeTokenizer(values func(io.Writer, Tensor) error) func(io.Writer, Tensor) error {
	return func(out io.Writer, t Tensor) error {
		if name, ok := strings.CutPrefix(t.Name, tokenizerPrefix); ok {
			_, err := out.Write(w.Tokenizer[name])
			return err
		}
		return values(out, t)
	}
}

// takeTokenizer reads the files of the tokenizer. It returns the remaining tensors, which are
// weights.
func (f *File) takeTokenizer() (files map[string][]byte, weights []Tensor, err error) {
	files = make(map[string][]byte)
	for _, t := range f.Tensors {
		name, ok := strings.CutPrefix(t.Name, tokenizerPrefix)
		switch {
		case !ok:
			weights = append(weights, t)
		case !data.IsTokenizerFile(name) || t.DType != u8 || len(t.Shape) != 1 || t.Bytes() > data.MaxTokenizer:
			return nil, nil, fmt.Errorf("tensor %.100q: %s %v, want a file of a tokenizer as %s, of at most %d bytes", t.Name, t.DType, t.Shape, u8, data.MaxTokenizer)
		default:
			if files[name], err = f.Read(t); err != nil {
				return nil, nil, err
			}
		}
	}
	return files, weights, nil
}
