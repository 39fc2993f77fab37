package checkpoint

import (
	"fmt"

	"dynmo/src/model"
)

// parameter is one tensor of a GPT-2 under the names of both worlds.
type parameter struct {
	name   string  // dynmo's: the layer, a slash, the layer's parameter
	gpt2   string  // Hugging Face's, without the prefix "transformer."
	shape  []int64 // (out, in), or (out) of a norm or bias
	conv1d bool    // Hugging Face stores it as (in, out)
}

// bytes returns the size of the parameter in float32.
func (p parameter) bytes() int64 { return p.shape[0] * p.row() }

// row returns the size of one of its rows in float32: a value of a vector.
func (p parameter) row() int64 {
	n := int64(4)
	for _, s := range p.shape[1:] {
		n *= s
	}
	return n
}

// tokenTable is the name of the embedding matrix, which a tied head shares.
const tokenTable = "embedding/token.weight"

// blockKinds are the parameters of a block. The order is llm.c's; shapes are
// in multiples of the hidden size, with in = 0 for a vector. Matrices are
// Conv1D in Hugging Face's GPT-2.
var blockKinds = []struct {
	name, gpt2 string
	out, in    int64
}{
	{"norm1.weight", "ln_1.weight", 1, 0}, {"norm1.bias", "ln_1.bias", 1, 0},
	{"qkv.weight", "attn.c_attn.weight", 3, 1}, {"qkv.bias", "attn.c_attn.bias", 3, 0},
	{"proj.weight", "attn.c_proj.weight", 1, 1}, {"proj.bias", "attn.c_proj.bias", 1, 0},
	{"norm2.weight", "ln_2.weight", 1, 0}, {"norm2.bias", "ln_2.bias", 1, 0},
	{"up.weight", "mlp.c_fc.weight", 4, 1}, {"up.bias", "mlp.c_fc.bias", 4, 0},
	{"down.weight", "mlp.c_proj.weight", 1, 4}, {"down.bias", "mlp.c_proj.bias", 1, 0},
}

// parameters returns all parameters of a model, in llm.c's order: the
// embedding, each kind of the blocks' for all blocks, the final norm; last the
// head if it is not tied.
func parameters(c model.Config) []parameter {
	hidden := int64(c.Hidden)
	list := []parameter{
		{tokenTable, "wte.weight", []int64{int64(c.Vocab), hidden}, false},
		{"embedding/position.weight", "wpe.weight", []int64{int64(c.Sequence), hidden}, false},
	}
	for _, k := range blockKinds {
		for b := range c.Blocks {
			p := parameter{fmt.Sprintf("block.%d/%s", b, k.name), fmt.Sprintf("h.%d.%s", b, k.gpt2), []int64{k.out * hidden}, k.in > 0}
			if k.in > 0 {
				p.shape = append(p.shape, k.in*hidden)
			}
			list = append(list, p)
		}
	}
	list = append(list, parameter{"head/norm.weight", "ln_f.weight", []int64{hidden}, false},
		parameter{"head/norm.bias", "ln_f.bias", []int64{hidden}, false})
	if !c.Tied {
		list = append(list, parameter{"head/head.weight", lmHead, []int64{int64(c.Vocab), hidden}, false})
	}
	return list
}

// transpose returns the transpose of a (rows, cols) matrix of float32.
func transpose(values []byte, rows, cols int64) []byte {
	t := make([]byte, len(values))
	for r := range rows {
		for c := range cols {
			copy(t[4*(c*rows+r):][:4], values[4*(r*cols+c):])
		}
	}
	return t
}
