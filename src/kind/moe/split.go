package moe

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"

	"dynmo/src/family/llama"
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

// Plan returns the shape of a model whose MLPs are cut into experts, and what cuts its weights.
// Memory holds the MLP of a block. Errors name what of the model or of the numbers does not
// fit.
func (s Split) Plan(c model.Config) (model.Config, *Splitter, error) {
	fail := func(format string, args ...any) (model.Config, *Splitter, error) {
		return c, nil, fmt.Errorf(format, args...)
	}
	switch {
	case c.Intermediate == 0:
		return fail("a model of type %s: want one whose MLPs are gated, as %s", c.FamilyName(), llama.Name)
	case model.KindOf[Experts](c).Count > 0:
		return fail("a model with %d experts in a block, want a dense one", model.KindOf[Experts](c).Count)
	case s.Count < 1 || s.Count > maxExperts/c.Blocks || c.Intermediate%s.Count != 0:
		return fail("%d experts: want at most %d, and a number that divides the %d channels of an MLP", s.Count, maxExperts/c.Blocks, c.Intermediate)
	case s.Top < 1 || s.Top > s.Count:
		return fail("a token goes to %d of %d experts: want at least 1 and at most these", s.Top, s.Count)
	case !(s.Scale >= minScale && s.Scale <= maxScale):
		return fail("scale %v: want a number from %g to %g", s.Scale, minScale, maxScale)
	case !(s.Deviation >= 0 && s.Deviation <= maxDeviation):
		return fail("deviation %v: want a number from 0 to %v", s.Deviation, maxDeviation)
	}
	k := &Splitter{Split: s, weights: make(map[string]model.Weight), channels: make([][]int, c.Blocks)}
	for _, p := range c.Weights() {
		k.weights[p.Name] = p
	}
	c.Intermediate /= s.Count
	for b := range k.channels {
		k.channels[b] = s.channels(b, c.Intermediate)
	}
	return c.With(Experts{Count: s.Count, Top: s.Top, Scale: s.Scale, Squashed: s.Squashed}), k, nil
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

// Splitter makes the weights of a split model.
type Splitter struct {
	Split
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

// Source returns the dense weight that a weight is cut from; of a router the matrix whose type
// it takes, of a weight that stays the weight itself.
func (k *Splitter) Source(p model.Weight) model.Weight { return k.weights[k.of(p).name] }

// of returns what a weight is cut from: a weight that stays has its own name, and a router
// that of the matrix whose type it takes.
func (k *Splitter) of(p model.Weight) (from densePart) {
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

// Rows appends rows [lo, hi) of a weight that is made. read returns the values of a dense
// weight. drawn says that the rows are float32, whatever type the dense weight has.
func (k *Splitter) Rows(dst []byte, p model.Weight, lo, hi int64, read func(model.Weight) ([]byte, error)) (rows []byte, drawn bool, err error) {
	from := k.of(p)
	if from.expert < 0 {
		return k.router(dst, p, from.block, lo, hi), true, nil
	}
	k.one.Lock()
	defer k.one.Unlock()
	dense := k.weights[from.name]
	if k.last == nil || k.at != from.block {
		k.last, k.at = make(map[string][]byte), from.block
	}
	values := k.last[dense.Name]
	if values == nil {
		if values, err = read(dense); err != nil {
			return nil, false, err
		}
		k.last[dense.Name] = values
	}
	row := int64(len(values)) / dense.Shape[0]
	size, width := row/dense.Shape[1], int64(len(k.channels[from.block])/k.Count)
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
	return dst, false, nil
}

// router appends rows of a router's matrix, normal with the deviation.
func (k *Splitter) router(dst []byte, p model.Weight, block int, lo, hi int64) []byte {
	name := fnv.New64a()
	name.Write([]byte(p.Name))
	for r := lo; r < hi; r++ {
		draw := random.Keyed(k.Seed, uint64(block), name.Sum64(), uint64(r))
		for range p.Shape[1] {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(k.Deviation*draw.NormFloat64())))
		}
	}
	return dst
}
