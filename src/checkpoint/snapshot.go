package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// Snapshot is a copy of layers between two steps. Its memory is reused for the next copy.
type Snapshot struct {
	files  []content
	memory []uint64
}

// content is the content of a file to be written.
type content struct {
	name     string
	metadata map[string]string
	tensors  []weights.Tensor
	values   map[string][]byte // by tensor
	text     []byte            // instead of tensors; nil: none
}

// sectionsKey is the metadata key in a state file for sections that are text.
const sectionsKey = "sections"

// Share is the index of a rank among the replicas with the same layers.
type Share struct {
	Replica, Of int
	Replicas    *comm.Group // nil unless layers are sliced
}

// Take copies a rank's share of layers. The share has the parts of layers that only this replica
// has. Whole layers are divided among the replicas in turn; such a copy includes the slices of the
// other replicas. No work on the layers may be in progress. Work may begin as soon as Take returns.
// If layers are sliced, Take is collective over the replicas.
func (s *Snapshot) Take(layers []*model.Layer, share Share, stream device.Stream) error {
	s.files = s.files[:0]
	var pieces [][]model.StateTensor // by file
	need := int64(0)
	add := func(name, sections string, l *model.Layer, list []model.StateTensor) {
		c := content{name: name, metadata: map[string]string{"format": "dynmo", "layer": l.Name}}
		if sections != "" {
			c.metadata[sectionsKey] = sections
		}
		s.files, pieces = append(s.files, c), append(pieces, list)
		for _, p := range list {
			need += words(p.Bytes())
		}
	}
	for i, l := range layers {
		if l.Own() {
			add(ownFile(l.ID, share.Replica), "", l, l.OwnState())
		}
		if i%share.Of != share.Replica {
			continue
		}
		rest, texts := l.Rest()
		text, err := json.Marshal(texts)
		if err != nil {
			return fmt.Errorf("layer %d: %w", l.ID, err)
		}
		add(weightsFile(l.ID), "", l, l.Weights())
		add(stateFile(l.ID), string(text), l, rest)
	}
	if int64(len(s.memory)) < need {
		s.memory = make([]uint64, need)
	}
	left := s.memory
	for i, list := range pieces {
		s.files[i].copy(list, &left, stream)
	}
	if err := stream.Sync(); err != nil {
		return fmt.Errorf("copy of %d layers: %w", len(layers), err)
	}
	for i, l := range layers {
		if err := s.gather(l, i%share.Of, share, stream); err != nil {
			return fmt.Errorf("layer %d: slices: %w", l.ID, err)
		}
	}
	return nil
}

// gather completes the copy of a sliced layer on the replica that writes it, with the slices of all
// other replicas. Collective over the replicas.
func (s *Snapshot) gather(l *model.Layer, writer int, share Share, stream device.Stream) error {
	pieces, _ := l.Rest()
	file := slices.IndexFunc(s.files, func(c content) bool { return c.name == stateFile(l.ID) })
	for _, p := range pieces {
		if !p.Sliced {
			continue
		}
		if share.Replica != writer {
			slice := make([]byte, p.Mem.Bytes)
			stream.Copy(tensor.From(slice), p.Mem)
			if err := stream.Sync(); err != nil {
				return err
			}
			if err := share.Replicas.SendBytes(writer, comm.TagSection, slice); err != nil {
				return err
			}
			continue
		}
		left := s.files[file].values[p.Name]
		for replica := range share.Of {
			n := p.Mem.Bytes
			if replica != writer {
				slice, err := share.Replicas.RecvBytes(replica, comm.TagSection)
				if err != nil {
					return err
				}
				n = int64(copy(left, slice))
			}
			left = left[n:]
		}
	}
	return nil
}

// AddRun adds the state of the run besides its layers. Only one rank calls it.
func (s *Snapshot) AddRun(text []byte) {
	s.files = append(s.files, content{name: runFile, text: text})
}

// Bytes returns the number of bytes in the copy.
func (s *Snapshot) Bytes() (n int64) {
	for _, f := range s.files {
		n += int64(len(f.text))
		for _, v := range f.values {
			n += int64(len(v))
		}
	}
	return n
}

// words returns the number of 8-byte words for some bytes.
func words(bytes int64) int64 { return (bytes + 7) / 8 }

// copy starts to copy pieces into unused memory. left is that memory.
func (c *content) copy(pieces []model.StateTensor, left *[]uint64, stream device.Stream) {
	c.values = make(map[string][]byte, len(pieces))
	for _, p := range pieces {
		c.tensors = append(c.tensors, describe(p))
		if p.Bytes() == 0 {
			c.values[p.Name] = nil
			continue
		}
		n := words(p.Bytes())
		to := tensor.From((*left)[:n]).Span(0, p.Bytes())
		*left = (*left)[n:]
		if !p.Mem.IsZero() {
			stream.Copy(to.Span(p.First, p.Mem.Bytes), p.Mem)
		}
		c.values[p.Name] = tensor.Of[byte](to)
	}
}

// describe returns the tensor that stores a piece in a file.
func describe(p model.StateTensor) weights.Tensor {
	if p.Shape == nil {
		return weights.Tensor{Name: p.Name, DType: "U8", Shape: []int64{p.Mem.Bytes}}
	}
	return weights.Tensor{Name: p.Name, DType: dtypes[p.DType], Shape: p.Shape}
}

// dtypes are the names of element types in files.
var dtypes = map[tensor.DType]weights.DType{
	tensor.F32: weights.F32, tensor.F64: "F64", tensor.BF16: "BF16", tensor.I32: "I32", tensor.I64: "I64", tensor.U64: "U64",
}
