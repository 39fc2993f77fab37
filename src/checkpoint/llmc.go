package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"dynmo/src/family"
	"dynmo/src/input"
	"dynmo/src/model"
)

// llm.c's model file (train_gpt2.py, write_model): a header of 256 i32, then
// the parameters in float32, in the order of model.Config.Weights. The vocabulary is
// padded with rows up to a multiple of 128.
const (
	llmcMagic   = 20240326
	llmcFloat32 = 3 // version
	llmcHeader  = 256
	llmcPadding = 128
	tokenTable  = 0 // place among the parameters
)

// OpenLLMC opens llm.c's model file of version 3 (float32). It drops the padding of the vocabulary.
func OpenLLMC(path string) (*Weights, error) {
	f, size, err := input.Regular(path, input.Unbound)
	if err != nil {
		return nil, err
	}
	w, err := parseLLMC(path, f, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	w.close = f.Close
	return w, nil
}

// parseLLMC checks the header against the size of the file, in bytes.
func parseLLMC(name string, r io.ReaderAt, size int64) (*Weights, error) {
	fail := func(field int, format string, args ...any) (*Weights, error) {
		return nil, fmt.Errorf("%s: byte %d: %w", name, 4*field, fmt.Errorf(format, args...))
	}
	if size < 4*llmcHeader {
		return nil, fmt.Errorf("%s: byte %d: the file ends within the header of %d bytes", name, size, 4*llmcHeader)
	}
	var raw [4 * llmcHeader]byte
	if n, err := r.ReadAt(raw[:], 0); n < len(raw) {
		return fail(0, "%w", err)
	}
	field := func(i int) int { return int(int32(binary.LittleEndian.Uint32(raw[4*i:]))) }
	if field(0) != llmcMagic {
		return fail(0, "magic %d, want %d: not llm.c's model file", field(0), llmcMagic)
	}
	if field(1) != llmcFloat32 {
		return fail(1, "version %d, want %d (float32)", field(1), llmcFloat32)
	}
	c := model.Config{Sequence: field(2), Vocab: field(3), Blocks: field(4), Heads: field(5), Hidden: field(6), Tied: true}
	for i, d := range []struct{ value, limit int }{
		{c.Sequence, family.MaxTokens}, {c.Vocab, family.MaxTokens}, {c.Blocks, family.MaxBlocks}, {c.Heads, family.MaxHidden}, {c.Hidden, family.MaxHidden},
	} {
		if d.value < 1 || d.value > d.limit {
			return fail(2+i, "%d: want 1 to %d", d.value, d.limit)
		}
	}
	if c.Hidden%c.Heads != 0 {
		return fail(5, "%d heads do not divide %d channels", c.Heads, c.Hidden)
	}
	if field(7) != padded(c.Vocab) {
		return fail(7, "padded vocabulary %d, want %d", field(7), padded(c.Vocab))
	}
	offsets, end := llmcOffsets(c)
	if end != size {
		return nil, fmt.Errorf("%s: %d bytes, want %d for the shape in the header", name, size, end)
	}
	return &Weights{Config: newConfig(c), close: func() error { return nil }, rows: func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		values := make([]byte, (hi-lo)*p.Row())
		if n, err := r.ReadAt(values, offsets[p.Name]+lo*p.Row()); n < len(values) {
			return nil, fmt.Errorf("%s: tensor %q: %w", name, p.Name, err)
		}
		return append(dst, values...), nil
	}}, nil
}

// padded returns the number of rows in llm.c's token table.
func padded(vocab int) int { return (vocab + llmcPadding - 1) / llmcPadding * llmcPadding }

// llmcOffsets returns the offset of each parameter and the size of the file, in bytes.
func llmcOffsets(c model.Config) (offsets map[string]int64, end int64) {
	offsets, end = make(map[string]int64), 4*llmcHeader
	for i, p := range c.Weights() {
		offsets[p.Name] = end
		end += p.Bytes()
		if i == tokenTable {
			end += int64(padded(c.Vocab)-c.Vocab) * int64(c.Hidden) * 4
		}
	}
	return offsets, end
}

// FitsLLMC returns an error unless llm.c's model file can store the weights: the model is a GPT-2
// with a tied head.
func (w *Weights) FitsLLMC() error {
	if is := family.FormOf(w.Config.Model); !is.LLMC {
		return fmt.Errorf("llm.c's model file is of GPT-2, the weights are of a model of type %s", is.Name)
	}
	if !w.Config.Model.Tied {
		return errors.New("llm.c's model file has no place for a head that is not tied to the embedding")
	}
	return nil
}

// WriteLLMC writes llm.c's model file of version 3, with zeros in the padding of the vocabulary.
// FitsLLMC must hold.
func (w *Weights) WriteLLMC(out io.Writer) error {
	c := w.Config.Model
	if err := w.FitsLLMC(); err != nil {
		return err
	}
	header := [llmcHeader]int32{llmcMagic, llmcFloat32, int32(c.Sequence), int32(c.Vocab), int32(c.Blocks),
		int32(c.Heads), int32(c.Hidden), int32(padded(c.Vocab))}
	if err := binary.Write(out, binary.LittleEndian, header); err != nil {
		return err
	}
	for i, p := range c.Weights() {
		values, err := w.read(p)
		if err != nil {
			return err
		}
		if i == tokenTable {
			values = append(values, make([]byte, (padded(c.Vocab)-c.Vocab)*c.Hidden*4)...)
		}
		if _, err := out.Write(values); err != nil {
			return err
		}
	}
	return nil
}
