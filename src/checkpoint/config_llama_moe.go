package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

const llamaMoEType = "llama_moe"

// kindLlamaMoE is LLaMA-MoE (Zhu et al. 2024), as the code that its checkpoints come with
// reads them (modeling_llama_moe_hf.py).
var kindLlamaMoE = kind{
	name: llamaMoEType, prefix: "model.", token: "embed_tokens.weight", buffers: []string{".rotary_emb.inv_freq"},
	read: readLlamaMoE, write: writeLlamaMoE, refuses: refusesLlamaMoE, beside: noiseOfLlamaMoE,
	names: func(e moe.Experts) []renaming {
		network := "gate_network"
		if e.Squashed {
			network += ".0"
		}
		return []renaming{
			{mixtralRouter, "mlp.gate." + network + ".weight"}, {outerRouter, "mlp.gate.gate_network.2.weight"},
			{mixtralGate, "mlp.calculator.experts.weight_gate.$1"}, {mixtralUp, "mlp.calculator.experts.weight_up.$1"},
			{mixtralDown, "mlp.calculator.experts.weight_down.$1"},
		}
	},
}

// llamaMoEBase is the base of rotary positions: no other is in its configuration, and its
// code takes none.
const llamaMoEBase = 10000

// readLlamaMoE returns the shape that a LlamaMoEConfig describes. What belongs to training
// alone, as the noise that is added to scores, is not looked at.
func readLlamaMoE(k keys) (model.Config, error) {
	c := model.Config{
		Family: familyLlama, Vocab: 32000, Sequence: 2048, Hidden: 4096, Blocks: 32, Heads: 32,
		Intermediate: 11008, NormEps: 1e-6, Rope: model.Rope{Base: llamaMoEBase},
	}.With(moe.Experts{Count: 16, Top: 4, Squashed: true})
	err := cmp.Or(k.llama(&c), k.experts(&c, "num_experts", "num_selects"),
		k.only("gate_type", "TopKBalancedNoisyGate"), k.only("gate_network", "mlp", "linear"), k.only("gate_use_softmax", true),
		k.only("calculator_type", "UniversalCalculator"), k.only("multiply_gate_scores", true), k.only("add_weight_norm", false))
	e := model.KindOf[moe.Experts](c)
	switch {
	case err != nil:
		return c, err
	case c.Intermediate%e.Count != 0:
		return c, k.fail("num_experts", "%d does not divide intermediate_size, %d", e.Count, c.Intermediate)
	}
	c.Intermediate /= e.Count
	e.Squashed = !k.is("gate_network", "linear")
	e.Scale, err = k.scoreScale(c.Blocks)
	c = c.With(e)
	return c, cmp.Or(err, k.equalExperts(c))
}

// is reports whether a member is a text.
func (k keys) is(key, text string) bool {
	got, err := k[key].text()
	return err == nil && got == text
}

// experts sets how many there are, and of these how many a token goes to.
func (k keys) experts(c *model.Config, count, top string) error {
	e := model.KindOf[moe.Experts](*c)
	err := k.dimensions(dimension{count, &e.Count, maxExperts}, dimension{top, &e.Top, maxExperts})
	switch {
	case err != nil:
	case e.Top > e.Count:
		err = k.fail(top, "%d of %d experts (%s): want at most these", e.Top, e.Count, count)
	case e.Count*c.Blocks > maxExperts:
		err = k.fail(count, "%d in each of %d blocks: want at most %d in all", e.Count, c.Blocks, maxExperts)
	}
	*c = c.With(e)
	return err
}

// Limits of what scores are multiplied by, of which moe.scale has the same most.
const minScale, maxScale = 1e-6, 65536.0

// scoreScale returns what scores are multiplied by: a number, or one for each block, which
// have to be equal.
func (k keys) scoreScale(blocks int) (float64, error) {
	const key = "score_scale_factor"
	scale := 1.0
	var each []float64
	if json.Unmarshal(k[key].json, &each) == nil && len(each) == blocks && !slices.ContainsFunc(each, func(x float64) bool { return x != each[0] }) {
		k = keys{key: value{fmt.Append(nil, each[0]), k[key].at}}
	}
	return scale, k.number(key, &scale, minScale, maxScale)
}

// equalExperts returns an error unless all experts are as wide as the shape says.
func (k keys) equalExperts(c model.Config) error {
	const key = "size_experts"
	if k.absent(key) {
		return nil
	}
	var sizes [][]int
	err := json.Unmarshal(k[key].json, &sizes)
	other := func(size int) bool { return size != c.Intermediate }
	if err != nil || len(sizes) != c.Blocks || slices.ContainsFunc(sizes, func(block []int) bool {
		return len(block) != model.KindOf[moe.Experts](c).Count || slices.ContainsFunc(block, other)
	}) {
		return k.fail(key, "%.40s…: want null, or %d for each of %d experts in %d blocks: others are not supported", k[key].json, c.Intermediate, model.KindOf[moe.Experts](c).Count, c.Blocks)
	}
	return nil
}

// noiseOfLlamaMoE lists the matrices of the noise that training adds to scores, which no
// layer here has: they are kept.
func noiseOfLlamaMoE(k keys, c model.Config) (list []model.Weight, err error) {
	noise := true
	if err := k.flag("gate_add_noise", &noise); err != nil || !noise {
		return nil, err
	}
	for b := range c.Blocks {
		list = append(list, model.Weight{
			Name: fmt.Sprintf("block.%d/router.noise.weight", b), HuggingFace: fmt.Sprintf("layers.%d.mlp.gate.weight_noise.weight", b),
			Shape: []int64{int64(model.KindOf[moe.Experts](c).Count), int64(c.Hidden)},
		})
	}
	return list, nil
}

// refusesLlamaMoE says what of a model it cannot describe.
func refusesLlamaMoE(c model.Config) error {
	switch r := c.Rope; {
	case r.Base != llamaMoEBase:
		return fmt.Errorf("model.rope_base is %v, %s has %d", r.Base, llamaMoEType, llamaMoEBase)
	case r.Scaling != "" && r.Scaling != model.RopeLinear:
		return fmt.Errorf("model.rope_scaling is %s, %s has linear or none", r.Scaling, llamaMoEType)
	}
	return nil
}

func writeLlamaMoE(c model.Config, end int32) any {
	scaling := scalingJSON(c.Rope)
	if c.Rope.Scaling == model.RopeLinear {
		scaling.Type, scaling.OldType = "", scaling.Type
	}
	e, network := model.KindOf[moe.Experts](c), "linear"
	if e.Squashed {
		network = "mlp"
	}
	return struct {
		Architectures []string    `json:"architectures"`
		Begin         *int32      `json:"bos_token_id"`
		End           *int32      `json:"eos_token_id"`
		Noise         bool        `json:"gate_add_noise"`
		Network       string      `json:"gate_network"`
		Activation    string      `json:"hidden_act"`
		Hidden        int         `json:"hidden_size"`
		Intermediate  int         `json:"intermediate_size"`
		Sequence      int         `json:"max_position_embeddings"`
		ModelType     string      `json:"model_type"`
		Heads         int         `json:"num_attention_heads"`
		Experts       int         `json:"num_experts"`
		Blocks        int         `json:"num_hidden_layers"`
		KeyValueHeads int         `json:"num_key_value_heads"`
		Top           int         `json:"num_selects"`
		Epsilon       json.Number `json:"rms_norm_eps"`
		Scaling       *ropeJSON   `json:"rope_scaling"`
		Theta         json.Number `json:"rope_theta"`
		Scale         json.Number `json:"score_scale_factor"`
		Tied          bool        `json:"tie_word_embeddings"`
		DType         string      `json:"torch_dtype"`
		Vocab         int         `json:"vocab_size"`
	}{[]string{"LlamaMoEForCausalLM"}, special(end), special(end), false, network, "silu", c.Hidden, c.Intermediate * e.Count, c.Sequence, llamaMoEType,
		c.Heads, e.Count, c.Blocks, c.KeyValueHeads, e.Top, fraction(c.NormEps), scaling, fraction(c.Rope.Base), fraction(cmp.Or(e.Scale, 1)), c.Tied, typeNames[F32], c.Vocab}
}
