package store

import (
	"encoding/json"
	"fmt"

	"dynmo/src/checkpoint"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Snapshot is a copy of layers as they were between two steps. Its memory is kept for
// the next one.
type Snapshot struct {
	files  []content
	memory []uint64
}

// content is what a file is to hold.
type content struct {
	name     string
	metadata map[string]string
	tensors  []checkpoint.Tensor
	values   map[string][]byte // by tensor
}

// sectionsKey is the key of a state file's metadata under which sections that are text
// stand.
const sectionsKey = "sections"

// Take copies layers. No work on them may be under way; it may begin as soon as Take
// returns.
func (s *Snapshot) Take(layers []*model.Layer, stream device.Stream) error {
	s.files = s.files[:0]
	need := int64(0)
	each(layers, func(_ *model.Layer, p model.Piece) { need += words(p.Mem.Bytes) })
	if int64(len(s.memory)) < need {
		s.memory = make([]uint64, need)
	}
	left := s.memory
	for _, l := range layers {
		pieces, texts := l.Rest()
		text, err := json.Marshal(texts)
		if err != nil {
			return fmt.Errorf("layer %d: %w", l.ID, err)
		}
		own := map[string]string{"format": "dynmo", "layer": l.Name}
		s.files = append(s.files,
			copied(weightsFile(l.ID), own, l.Weights(), &left, stream),
			copied(stateFile(l.ID), map[string]string{"format": "dynmo", "layer": l.Name, sectionsKey: string(text)}, pieces, &left, stream))
	}
	if err := stream.Sync(); err != nil {
		return fmt.Errorf("copy of %d layers: %w", len(layers), err)
	}
	return nil
}

// Bytes returns what the copy holds.
func (s *Snapshot) Bytes() (n int64) {
	for _, f := range s.files {
		for _, v := range f.values {
			n += int64(len(v))
		}
	}
	return n
}

// each visits all pieces of layers.
func each(layers []*model.Layer, visit func(*model.Layer, model.Piece)) {
	for _, l := range layers {
		rest, _ := l.Rest()
		for _, p := range append(l.Weights(), rest...) {
			visit(l, p)
		}
	}
}

// words returns how many words some bytes take.
func words(bytes int64) int64 { return (bytes + 7) / 8 }

// copied begins copies of pieces into memory that is left.
func copied(name string, metadata map[string]string, pieces []model.Piece, left *[]uint64, stream device.Stream) content {
	c := content{name: name, metadata: metadata, values: make(map[string][]byte, len(pieces))}
	for _, p := range pieces {
		c.tensors = append(c.tensors, describe(p))
		if p.Mem.Bytes == 0 {
			c.values[p.Name] = nil
			continue
		}
		n := words(p.Mem.Bytes)
		to := tensor.From((*left)[:n]).Span(0, p.Mem.Bytes)
		*left = (*left)[n:]
		stream.Copy(to, p.Mem)
		c.values[p.Name] = tensor.Of[byte](to)
	}
	return c
}

// describe returns a piece as a file names it.
func describe(p model.Piece) checkpoint.Tensor {
	if p.Shape == nil {
		return checkpoint.Tensor{Name: p.Name, DType: "U8", Shape: []int64{p.Mem.Bytes}}
	}
	return checkpoint.Tensor{Name: p.Name, DType: dtypes[p.DType], Shape: p.Shape}
}

// dtypes are the names of element types in files.
var dtypes = map[tensor.DType]checkpoint.DType{
	tensor.F32: checkpoint.F32, tensor.F64: "F64", tensor.BF16: "BF16", tensor.I32: "I32", tensor.I64: "I64", tensor.U64: "U64",
}
