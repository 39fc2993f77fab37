// Package sample makes a trained model go on with a text. What comes in are the
// weights of a GPT-2, of any file, and the tokens of a prompt; what goes out are
// the logits of the token that follows, and from them, one by one, tokens.
//
// It computes on the CPU in float32, without ranks, devices or memory for
// gradients. A Session keeps the keys and values of all tokens so far, so that
// one more token reads every weight once: a product of a matrix and a vector, which is
// as fast as memory. Threads share the rows of a product; how many there are
// changes no bit. Products of many tokens, a prompt's, may be a kernel backend's.
package sample

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/model"
)

// Model is the weights of a GPT-2, matrices (out, in). Sessions may share it, one
// of them at a time.
type Model struct {
	Config model.Config

	token, position, head []float32 // (V, C), (sequence, C), (V, C)
	blocks                []block
	norm                  norm // the last
	team                  team
	kernels               kernel.Backend // nil: none
}

// block is the weights of one block.
type block struct {
	norm1, norm2        norm
	qkv, proj, up, down linear
}

// norm is a layer norm's weight and bias (C).
type norm struct{ weight, bias []float32 }

// linear is a matrix (out, in) and a bias (out).
type linear struct{ weight, bias []float32 }

// New returns the model of a shape, with the values that read returns of every
// weight. Reads run at once, on as many goroutines as there are threads (at least
// one). k, of float32 in host memory, multiplies many tokens faster than this package
// does; it may be nil. Errors are those of read, or that the model is no GPT-2.
func New(c model.Config, threads int, k kernel.Backend, read func(model.Weight) ([]float32, error)) (*Model, error) {
	if threads < 1 {
		panic("sample: no threads")
	}
	if c.Family != "" && c.Family != "gpt2" {
		return nil, fmt.Errorf("a model of the family %s, want gpt2", c.Family)
	}
	m := &Model{Config: c, blocks: make([]block, c.Blocks), team: team(threads), kernels: k}
	places := m.places()
	weights := c.Weights()
	slices.SortStableFunc(weights, func(a, b model.Weight) int { return cmp.Compare(a.Name, b.Name) }) // a layer's one after the other
	memory, errs := room(weights), make([]error, len(weights))
	m.team.share(len(weights), 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			place, ok := places[weights[i].Name]
			if !ok {
				panic("sample: a weight that GPT-2 has not")
			}
			var values []float32
			values, errs[i] = read(weights[i])
			*place = memory[i]
			copy(*place, values)
		}
	})
	if c.Tied {
		m.head = m.token
	}
	return m, cmp.Or(errs...)
}

// places returns where each weight belongs, by its name (see model.Weight).
func (m *Model) places() map[string]*[]float32 {
	places := map[string]*[]float32{
		"embedding/token.weight": &m.token, "embedding/position.weight": &m.position,
		"head/norm.weight": &m.norm.weight, "head/norm.bias": &m.norm.bias, "head/head.weight": &m.head,
	}
	for i := range m.blocks {
		b := &m.blocks[i]
		for name, place := range map[string]*[]float32{
			"norm1.weight": &b.norm1.weight, "norm1.bias": &b.norm1.bias, "norm2.weight": &b.norm2.weight, "norm2.bias": &b.norm2.bias,
			"qkv.weight": &b.qkv.weight, "qkv.bias": &b.qkv.bias, "proj.weight": &b.proj.weight, "proj.bias": &b.proj.bias,
			"up.weight": &b.up.weight, "up.bias": &b.up.bias, "down.weight": &b.down.weight, "down.bias": &b.down.bias,
		} {
			places[fmt.Sprintf("block.%d/%s", i, name)] = place
		}
	}
	return places
}

// TokenBytes returns the bytes of weights that one more token reads: all but the
// embeddings of other tokens and positions.
func (m *Model) TokenBytes() int64 {
	n := len(m.head) + len(m.norm.weight) + len(m.norm.bias) + 2*m.Config.Hidden
	for _, b := range m.blocks {
		for _, v := range [][]float32{b.norm1.weight, b.norm1.bias, b.norm2.weight, b.norm2.bias, b.qkv.weight, b.qkv.bias,
			b.proj.weight, b.proj.bias, b.up.weight, b.up.bias, b.down.weight, b.down.bias} {
			n += len(v)
		}
	}
	return 4 * int64(n)
}
