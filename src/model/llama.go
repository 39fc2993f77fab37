package model

import "fmt"

// llama is LLaMA (Touvron et al. 2023): as gpt2, with RMSNorm, rotary positions in place
// of a table, attention whose queries share keys and values in groups (Ainslie et al.
// 2023), a gated MLP (Shazeer 2020), and without biases.
type llama struct{}

// Chain has the parts that KeyValueHeads, Intermediate, NormEps and Rope ask for.
func (llama) Chain(c Config) []Description { return describe(c) }

// Weights lists the embedding, the parameters block by block, the final norm, and last the
// head if it is not tied.
func (llama) Weights(c Config) []Weight {
	hidden := int64(c.Hidden)
	keyed := int64(c.Keyed() * (c.Hidden / c.Heads))
	list := []Weight{{Name: TokenWeight, HuggingFace: "embed_tokens.weight", Shape: []int64{int64(c.Vocab), hidden}}}
	for b := range c.Blocks {
		at, there := fmt.Sprintf("block.%d/", b), fmt.Sprintf("layers.%d.", b)
		of := func(name string, rows int64) Rows { return Rows{there + name, rows} }
		list = append(list,
			Weight{Name: at + "norm1.weight", HuggingFace: there + "input_layernorm.weight", Shape: []int64{hidden}},
			Weight{Name: at + "qkv.weight", Shape: []int64{hidden + 2*keyed, hidden}, Split: []Rows{
				of("self_attn.q_proj.weight", hidden), of("self_attn.k_proj.weight", keyed), of("self_attn.v_proj.weight", keyed)}},
			Weight{Name: at + "proj.weight", HuggingFace: there + "self_attn.o_proj.weight", Shape: []int64{hidden, hidden}},
			Weight{Name: at + "norm2.weight", HuggingFace: there + "post_attention_layernorm.weight", Shape: []int64{hidden}})
		list = append(list, GatedWeights(c, at, there, "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")...)
	}
	list = append(list, Weight{Name: "head/norm.weight", HuggingFace: "norm.weight", Shape: []int64{hidden}})
	if !c.Tied {
		list = append(list, Weight{Name: "head/head.weight", HuggingFace: "lm_head.weight", Shape: []int64{int64(c.Vocab), hidden}, Outside: true})
	}
	return list
}

// GatedWeights lists the matrices of a gated MLP whose names begin with at, and with there
// and the names of the three in files of Hugging Face.
func GatedWeights(c Config, at, there, gate, up, down string) []Weight {
	hidden, inside := int64(c.Hidden), int64(c.Intermediate)
	return []Weight{
		{Name: at + "gateup.weight", Shape: []int64{2 * inside, hidden}, Split: []Rows{{there + gate, inside}, {there + up, inside}}},
		{Name: at + "down.weight", HuggingFace: there + down, Shape: []int64{hidden, inside}},
	}
}
