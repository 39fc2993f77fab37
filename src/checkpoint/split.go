package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/random"
)

// Split is how the gated MLPs of a dense model become experts, each of some of their
// channels (Zhu et al. 2024, LLaMA-MoE). Where a token goes to all of them by equal weights,
// which Scale makes 1, the model computes what the dense one does.
type Split struct {
	Count, Top int
	Scale      float64 // of the router's weights
	Squashed   bool    // the router is two matrices
	InOrder    bool    // the first expert has the first channels, and so on; else channels are drawn
	Deviation  float64 // of the router's new weights; with 0 every token goes to the first experts
	Seed       uint64
}

// maxDeviation keeps a router's weights within the range of float16.
const maxDeviation = 1000.0

// Split returns weights whose MLPs are cut into experts, of the types that they have. They
// are read from w when they are asked for; memory holds the MLP of a block. Errors name what
// of the model or of the numbers does not fit.
func (w *Weights) Split(s Split) (*Weights, error) {
	c := w.Config.Model
	switch {
	case c.Intermediate == 0:
		return nil, fmt.Errorf("a model of type %s: want one whose MLPs are gated, as %s", w.Config.kind.name, llamaType)
	case model.KindOf[moe.Experts](c).Count > 0:
		return nil, fmt.Errorf("a model with %d experts in a block, want a dense one", model.KindOf[moe.Experts](c).Count)
	case s.Count < 1 || s.Count > maxExperts/c.Blocks || c.Intermediate%s.Count != 0:
		return nil, fmt.Errorf("%d experts: want at most %d, and a number that divides the %d channels of an MLP", s.Count, maxExperts/c.Blocks, c.Intermediate)
	case s.Top < 1 || s.Top > s.Count:
		return nil, fmt.Errorf("a token goes to %d of %d experts: want at least 1 and at most these", s.Top, s.Count)
	case !(s.Scale >= minScale && s.Scale <= maxScale):
		return nil, fmt.Errorf("scale %v: want a number from %g to %g", s.Scale, minScale, maxScale)
	case !(s.Deviation >= 0 && s.Deviation <= maxDeviation):
		return nil, fmt.Errorf("deviation %v: want a number from 0 to %v", s.Deviation, maxDeviation)
	}
	c.Intermediate /= s.Count
	c = c.With(moe.Experts{Count: s.Count, Top: s.Top, Scale: s.Scale, Squashed: s.Squashed})
	split := &Weights{Config: EndingConfig(c, w.Config.End), Tokenizer: w.Tokenizer, types: make(map[string]DType), close: w.close}
	split.Prefix = split.Config.kind.prefix
	k := &splitter{Split: s, dense: w, weights: make(map[string]model.Weight), channels: make([][]int, c.Blocks)}
	for _, p := range w.Config.Model.Weights() {
		k.weights[p.Name] = p
		split.types[p.Name] = w.dtype(p)
	}
	for b := range k.channels {
		k.channels[b] = s.channels(b, c.Intermediate)
	}
	for _, p := range c.Weights() {
		if from := k.of(p); from.name != p.Name {
			split.types[p.Name] = w.dtype(k.weights[from.name])
		}
	}
	split.rows = k.rows
	var err error
	split.Config.Text, err = split.Config.stored(split.types["block.0/expert.0.gateup.weight"])
	return split, err
}

// channels returns the channels of the MLP of a block by expert, width of each, in their
// order.
func (s Split) channels(block, width int) []int {
	list := random.Keyed(s.Seed, uint64(block)).Perm(s.Count * width)
	if s.InOrder {
		slices.Sort(list)
	}
	for one := range slices.Chunk(list, width) {
		slices.Sort(one)
	}
	return list
}

// splitter reads the weights of a split model.
type splitter struct {
	Split
	dense    *Weights
	weights  map[string]model.Weight // of the dense model
	channels [][]int                 // by block

	one  sync.Mutex
	last map[string][]byte // of the block that was read last: values of dense matrices
	at   int               // which block it is
}

// densePart is the dense matrix that a weight is cut from.
type densePart struct {
	name          string
	block, expert int
}

// of returns what a weight is cut from: a weight that stays has its own name, and a router
// that of the matrix whose type it takes.
func (k *splitter) of(p model.Weight) (from densePart) {
	if _, ok := k.weights[p.Name]; ok {
		return densePart{name: p.Name}
	}
	var part string
	if n, _ := fmt.Sscanf(p.Name, "block.%d/expert.%d.%s", &from.block, &from.expert, &part); n != 3 {
		fmt.Sscanf(p.Name, "block.%d/", &from.block)
		from.expert, part = -1, "gateup.weight"
	}
	from.name = fmt.Sprintf("block.%d/%s", from.block, part)
	return from
}

// rows appends values of rows [lo, hi) of a weight of the split model.
func (k *splitter) rows(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
	from := k.of(p)
	dense := k.weights[from.name]
	switch {
	case from.name == p.Name:
		return k.dense.rows(dst, p, lo, hi)
	case from.expert < 0:
		return k.router(dst, p, from.block, k.dense.dtype(dense), lo, hi)
	}
	k.one.Lock()
	defer k.one.Unlock()
	values, err := k.matrix(from.block, dense)
	if err != nil {
		return nil, err
	}
	size := k.dense.dtype(dense).bytes()
	row, width := dense.Row()/4*size, int64(len(k.channels[from.block])/k.Count)
	channels := k.channels[from.block][int64(from.expert)*width:][:width]
	for r := lo; r < hi; r++ {
		if p.Shape[1] != dense.Shape[1] { // down: columns are channels
			for _, c := range channels {
				dst = append(dst, values[r*row+int64(c)*size:][:size]...)
			}
			continue
		}
		c := int64(channels[r%width]) + r/width*int64(len(k.channels[from.block])) // gate, then up
		dst = append(dst, values[c*row:][:row]...)
	}
	return dst, nil
}

// matrix returns the values of a dense matrix of a block.
func (k *splitter) matrix(block int, dense model.Weight) (values []byte, err error) {
	if k.last == nil || k.at != block {
		k.last, k.at = make(map[string][]byte), block
	}
	if k.last[dense.Name] == nil {
		k.last[dense.Name], err = k.dense.rows(nil, dense, 0, dense.Shape[0])
	}
	return k.last[dense.Name], err
}

// router appends rows of a router's matrix, normal with the deviation.
func (k *splitter) router(dst []byte, p model.Weight, block int, d DType, lo, hi int64) ([]byte, error) {
	name := fnv.New64a()
	name.Write([]byte(p.Name))
	var values []byte
	for r := lo; r < hi; r++ {
		draw := random.Keyed(k.Seed, uint64(block), name.Sum64(), uint64(r))
		for range p.Shape[1] {
			values = binary.LittleEndian.AppendUint32(values, math.Float32bits(float32(k.Deviation*draw.NormFloat64())))
		}
	}
	values, err := convert(values, F32, d)
	return append(dst, values...), err
}
