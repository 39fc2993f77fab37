package data

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"dynmo/src/files"
)

// megatronU16 is the vocabulary size from which on Megatron-LM's writer uses i32 instead of u16.
const megatronU16 = 65500

// Writer writes a token file, document by document. Before Close the file's name has its old
// content, or does not exist.
type Writer struct {
	path   string
	format Format
	vocab  int
	element
	bin     *files.File
	out     *bufio.Writer
	scratch []byte
	count   int64   // number of tokens written
	lengths []int32 // tokens of each document, for an index; the last one is open
}

// Create starts the token file PREFIX.bin with ids below vocab, in the element type of the format
// for that vocabulary. It replaces an existing file and its index. Errors: the format is unknown,
// or the file cannot be made.
func Create(path string, format Format, vocab int) (*Writer, error) {
	w := &Writer{path: path, format: format, vocab: vocab, element: u16}
	switch {
	case !isTokenFile(path):
		return nil, fmt.Errorf("%s: want a name that ends in .bin", path)
	case format == LLMC:
		if vocab > 1<<16 {
			w.element = u32
		}
	case format == Megatron:
		if vocab >= megatronU16 {
			w.element = i32
		}
	default:
		return nil, fmt.Errorf("format %q, want %s or %s", format, LLMC, Megatron)
	}
	var err error
	if w.bin, err = files.Create(path); err != nil {
		return nil, err
	}
	w.out = bufio.NewWriterSize(w.bin, 1<<20)
	if format == LLMC {
		if _, err := w.out.Write(make([]byte, llmcHeader)); err != nil {
			w.Abort()
			return nil, err
		}
	}
	return w, nil
}

// Append adds tokens to the present document. last ends the document. It panics at an id outside
// the vocabulary.
func (w *Writer) Append(tokens []int32, last bool) error {
	if w.format == Megatron {
		if len(w.lengths) == 0 {
			w.lengths = append(w.lengths, 0)
		}
		document := &w.lengths[len(w.lengths)-1]
		if int64(len(tokens)) > math.MaxInt32-int64(*document) {
			return fmt.Errorf("%s: document %d: more tokens than the 2^31 - 1 of the format", w.path, len(w.lengths))
		}
		*document += int32(len(tokens))
		if last {
			w.lengths = append(w.lengths, 0)
		}
	}
	w.count += int64(len(tokens))
	if w.format == LLMC && w.count > math.MaxInt32 {
		return fmt.Errorf("%s: more tokens than the 2^31 - 1 of a file of llm.c: prepare parts, or write the format %s", w.path, Megatron)
	}
	w.scratch = w.scratch[:0]
	for _, id := range tokens {
		if id < 0 || int(id) >= w.vocab {
			panic("data: id outside of the vocabulary")
		}
		w.scratch = w.appendID(w.scratch, id)
	}
	_, err := w.out.Write(w.scratch)
	return err
}

// Close completes the file and, for Megatron, its index. If that fails it leaves neither.
func (w *Writer) Close() error {
	err := w.out.Flush()
	if err == nil && w.format == LLMC {
		_, err = w.bin.WriteAt(llmcHead(w.element, w.count), 0)
	}
	if err != nil {
		w.Abort()
		return err
	}
	index := megatronIndex(w.path)
	if w.format == Megatron {
		return w.closeWith(index)
	}
	if err := os.Remove(index); err != nil && !errors.Is(err, fs.ErrNotExist) { // index of an earlier file
		w.Abort()
		return err
	}
	return w.bin.Commit()
}

// closeWith completes a Megatron file, whose ids are written, and its index.
func (w *Writer) closeWith(index string) error {
	if n := len(w.lengths); n > 0 && w.lengths[n-1] == 0 {
		w.lengths = w.lengths[:n-1] // no document followed the last one
	}
	idx, err := files.Create(index)
	if err != nil {
		w.Abort()
		return err
	}
	if _, err = idx.Write(megatronIdx(w.element, w.lengths)); err != nil {
		w.Abort()
	} else {
		err = w.bin.Commit()
	}
	if err != nil {
		idx.Discard()
		return err
	}
	if err = idx.Commit(); err != nil {
		return errors.Join(err, os.Remove(w.path))
	}
	return nil
}

// Abort discards the file. An existing file stays unchanged.
func (w *Writer) Abort() { w.bin.Discard() }
