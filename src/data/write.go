package data

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
)

// megatronU16 is the vocabulary from which Megatron-LM's writer takes i32 for
// u16.
const megatronU16 = 65500

// Writer writes a token file, document by document. The number of tokens is
// written last, so readers refuse a file that was not closed.
type Writer struct {
	path   string
	format Format
	vocab  int
	element
	bin     *os.File
	out     *bufio.Writer
	scratch []byte
	count   int64   // tokens written
	lengths []int32 // tokens of each document, for an index
}

// Create begins the token file PREFIX.bin of ids below vocab, in the element
// type that the format has for such a vocabulary. Errors: the format is
// unknown, PREFIX.bin or PREFIX.idx is there already, or cannot be made.
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
	if _, err := os.Lstat(megatronIndex(path)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is there already: remove it or name another file", megatronIndex(path))
	}
	var err error
	w.bin, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is there already: remove it or name another file", path)
	}
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewWriterSize(w.bin, 1<<20)
	if format == LLMC {
		if _, err := w.out.Write(make([]byte, llmcHeader)); err != nil {
			return nil, errors.Join(err, w.Abort())
		}
	}
	return w, nil
}

// Append adds tokens to the document that is being written and ends it if it
// is the last of them. It panics at an id outside of the vocabulary.
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

// Close completes the file, or removes it if that fails.
func (w *Writer) Close() error {
	err := w.out.Flush()
	if err == nil && w.format == LLMC {
		_, err = w.bin.WriteAt(llmcHead(w.element, w.count), 0)
	}
	err = errors.Join(err, w.bin.Close())
	if err == nil && w.format == Megatron {
		if n := len(w.lengths); n > 0 && w.lengths[n-1] == 0 {
			w.lengths = w.lengths[:n-1] // no document followed the last
		}
		err = os.WriteFile(megatronIndex(w.path), megatronIdx(w.element, w.lengths), 0o666)
	}
	if err != nil {
		return errors.Join(err, w.remove())
	}
	return nil
}

// Abort removes the file.
func (w *Writer) Abort() error { return errors.Join(w.bin.Close(), w.remove()) }

func (w *Writer) remove() error {
	return errors.Join(os.RemoveAll(w.path), os.RemoveAll(megatronIndex(w.path)))
}
