package llama

import (
	"fmt"

	"dynmo/src/model"
)

// weights lists the embedding, the parameters block by block, the final norm, and last the head
// unless it is tied.
func weights(c model.Config) []model.Weight {
	hidden := int64(c.Hidden)
	keyed := int64(c.Keyed() * (c.Hidden / c.Heads))
	list := []model.Weight{{Name: model.TokenWeight, HuggingFace: "embed_tokens.weight", Shape: []int64{int64(c.Vocab), hidden}}}
	for b := range c.Blocks {
		at, there := fmt.Sprintf("block.%d/", b), fmt.Sprintf("layers.%d.", b)
		of := func(name string, rows int64) model.Rows { return model.Rows{HuggingFace: there + name, Rows: rows} }
		list = append(list,
			model.Weight{Name: at + "norm1.weight", HuggingFace: there + "input_layernorm.weight", Shape: []int64{hidden}},
			model.Weight{Name: at + "qkv.weight", Shape: []int64{hidden + 2*keyed, hidden}, Split: []model.Rows{
				of("self_attn.q_proj.weight", hidden), of("self_attn.k_proj.weight", keyed), of("self_attn.v_proj.weight", keyed)}},
			model.Weight{Name: at + "proj.weight", HuggingFace: there + "self_attn.o_proj.weight", Shape: []int64{hidden, hidden}},
			model.Weight{Name: at + "norm2.weight", HuggingFace: there + "post_attention_layernorm.weight", Shape: []int64{hidden}})
		list = append(list, GatedWeights(c, at, there, "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")...)
	}
	list = append(list, model.Weight{Name: "head/norm.weight", HuggingFace: "norm.weight", Shape: []int64{hidden}})
	if !c.Tied {
		list = append(list, model.Weight{Name: "head/head.weight", HuggingFace: "lm_head.weight", Shape: []int64{int64(c.Vocab), hidden}, Outside: true})
	}
	return list
}

// GatedWeights lists the three matrices of a gated MLP. at is the prefix of their names here, there
// the prefix in Hugging Face files; gate, up and down are their names there.
func GatedWeights(c model.Config, at, there, gate, up, down string) []model.Weight {
	hidden, inside := int64(c.Hidden), int64(c.Intermediate)
	return []model.Weight{
		{Name: at + "gateup.weight", Shape: []int64{2 * inside, hidden}, Split: []model.Rows{{HuggingFace: there + gate, Rows: inside}, {HuggingFace: there + up, Rows: inside}}},
		{Name: at + "down.weight", HuggingFace: there + down, Shape: []int64{hidden, inside}},
	}
}
