package moe

import (
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"testing"
)

// TestParameters: models have as many parameters as the tensors that were published of them.
func TestParameters(t *testing.T) {
	llama := func(blocks, hidden, heads, keyed, inside, vocab int) model.Config {
		return model.Config{
			Family: "llama", Blocks: blocks, Hidden: hidden, Heads: heads, KeyValueHeads: keyed, Intermediate: inside,
			NormEps: 1e-5, Rope: model.Rope{Base: 1e4}, Sequence: 2048, Vocab: vocab,
		}
	}
	mixtral, cut := llama(32, 4096, 32, 8, 14336, 32000), llama(32, 4096, 32, 32, 688, 32000)
	modeltest.Edit(&mixtral, func(k *Experts) { k.Count, k.Top = 8, 2 })
	modeltest.Edit(&cut, func(k *Experts) { k.Count, k.Top = 16, 4 })
	shared := mixtral.AsReplica(3, 4)
	tied := llama(16, 2048, 32, 8, 8192, 128256)
	tied.Tied = true
	for name, c := range map[string]struct {
		shape model.Config
		want  int64
		met   int64 // by a token
	}{
		"GPT-2":                          {model.Config{Blocks: 12, Hidden: 768, Heads: 12, Sequence: 1024, Vocab: 50257, Tied: true}, 124_439_808, 124_439_808},
		"LLaMA-2 7B":                     {llama(32, 4096, 32, 32, 11008, 32000), 6_738_415_616, 6_738_415_616},
		"TinyLlama":                      {llama(22, 2048, 32, 4, 5632, 32000), 1_100_048_384, 1_100_048_384},
		"Llama 3.1 8B":                   {llama(32, 4096, 32, 8, 14336, 128256), 8_030_261_248, 8_030_261_248},
		"Llama 3.2 1B":                   {tied, 1_235_814_400, 1_235_814_400},
		"Mixtral 8x7B":                   {mixtral, 46_702_792_704, 12_879_925_248},
		"Mixtral 8x7B on replica 3 of 4": {shared, 46_702_792_704, 12_879_925_248},
		// LLaMA-2 7B whose MLPs are cut into sixteen, and 32 routers of 16·4096: 6.7 and 3.5 billion.
		"LLaMA-MoE-3.5B (4/16)": {cut, 6_738_415_616 + 32*16*4096, 6_738_415_616 + 32*16*4096 - 32*3*4096*11008*3/4},
	} {
		if got := c.shape.Parameters(); got != c.want {
			t.Errorf("%s: %d parameters, want %d", name, got, c.want)
		}
		if got := c.shape.Active(); got != c.met {
			t.Errorf("%s: a token meets %d parameters, want %d", name, got, c.met)
		}
		weights := int64(0)
		for _, w := range c.shape.Weights() {
			weights += w.Bytes() / 4
		}
		if weights != c.want {
			t.Errorf("%s: weights of %d parameters, want %d", name, weights, c.want)
		}
		half := c.shape
		half.HalfGrain, half.HeadShards = true, 3
		if got := half.Parameters(); got != c.want {
			t.Errorf("%s in halves: %d parameters, want %d", name, got, c.want)
		}
	}
}

// TestFlops: of LLaMA-2 7B at 4096 tokens, 6 for each of the 6,607,077,376 weights of blocks
// and head in matrices, and 6·32·4096·4096 in attention.
func TestFlops(t *testing.T) {
	c := model.Config{
		Family: "llama", Blocks: 32, Hidden: 4096, Heads: 32, KeyValueHeads: 32, Intermediate: 11008, NormEps: 1e-5, Rope: model.Rope{Base: 1e4},
		Sequence: 4096, Vocab: 32000,
	}
	matrices := 32*(4*4096*4096+3*4096*11008) + 4096*32000
	if got, want := c.Flops(), 6*float64(matrices)+6*32*4096*4096; got != want || matrices != 6_607_077_376 {
		t.Errorf("%v of %d weights, want %v", got, matrices, want)
	}
}
