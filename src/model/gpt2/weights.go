package gpt2

import (
	"fmt"

	"dynmo/src/model"
)

// inBlock lists the parameters of a block, in llm.c's order. Shapes are in multiples of the hidden
// size; in = 0 means a vector. Hugging Face's GPT-2 stores matrices transposed, as its Conv1D does.
var inBlock = []struct {
	name, huggingFace string
	out, in           int64
}{
	{"norm1.weight", "ln_1.weight", 1, 0}, {"norm1.bias", "ln_1.bias", 1, 0},
	{"qkv.weight", "attn.c_attn.weight", 3, 1}, {"qkv.bias", "attn.c_attn.bias", 3, 0},
	{"proj.weight", "attn.c_proj.weight", 1, 1}, {"proj.bias", "attn.c_proj.bias", 1, 0},
	{"norm2.weight", "ln_2.weight", 1, 0}, {"norm2.bias", "ln_2.bias", 1, 0},
	{"up.weight", "mlp.c_fc.weight", 4, 1}, {"up.bias", "mlp.c_fc.bias", 4, 0},
	{"down.weight", "mlp.c_proj.weight", 1, 4}, {"down.bias", "mlp.c_proj.bias", 1, 0},
}

// weights lists the embedding, then each parameter of all blocks, the final norm, and last the head
// unless it is tied.
func weights(c model.Config) []model.Weight {
	hidden := int64(c.Hidden)
	list := []model.Weight{
		{Name: model.TokenWeight, HuggingFace: "wte.weight", Shape: []int64{int64(c.Vocab), hidden}},
		{Name: "embedding/position.weight", HuggingFace: "wpe.weight", Shape: []int64{int64(c.Sequence), hidden}},
	}
	for _, k := range inBlock {
		for b := range c.Blocks {
			w := model.Weight{
				Name: fmt.Sprintf("block.%d/%s", b, k.name), HuggingFace: fmt.Sprintf("h.%d.%s", b, k.huggingFace),
				Shape: []int64{k.out * hidden}, Transposed: k.in > 0,
			}
			if k.in > 0 {
				w.Shape = append(w.Shape, k.in*hidden)
			}
			list = append(list, w)
		}
	}
	list = append(list, model.Weight{Name: "head/norm.weight", HuggingFace: "ln_f.weight", Shape: []int64{hidden}},
		model.Weight{Name: "head/norm.bias", HuggingFace: "ln_f.bias", Shape: []int64{hidden}})
	if !c.Tied {
		list = append(list, model.Weight{Name: "head/head.weight", HuggingFace: "lm_head.weight", Shape: []int64{int64(c.Vocab), hidden}, Outside: true})
	}
	return list
}
