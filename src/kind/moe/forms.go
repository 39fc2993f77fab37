package moe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/model/family"
	"dynmo/src/model/llama"
)

// Model types of Hugging Face's.
const (
	mixtralType  = "mixtral"
	llamaMoEType = "llama_moe"
)

// forms are those of LLaMA with experts.
var forms = family.Forms{
	Describes: func(c model.Config) bool { return c.FamilyName() == llama.Name && model.KindOf[Experts](c).Count > 0 },
	Extended: func(c, shape model.Config) model.Config {
		e := model.KindOf[Experts](c)
		return shape.With(Experts{Count: e.Count, Top: e.Top, Scale: e.Scale, Squashed: e.Squashed})
	},
	Settings: func(c model.Config) []family.Setting {
		e := model.KindOf[Experts](c)
		return []family.Setting{
			{Name: "moe.experts", Value: e.Count}, {Name: "moe.top", Value: e.Top}, {Name: "moe.router", Value: e.network()},
			{Name: "moe.scale", Value: cmp.Or(e.Scale, 1)},
		}
	},
	List: []family.Form{mixtral, llamaMoE},
}

// network returns the form of the router as settings and configurations name it.
func (e Experts) network() string {
	if e.Squashed {
		return "mlp"
	}
	return "linear"
}

// coefficient returns the router_aux_loss_coef for Hugging Face's Mixtral: Auxiliary·blocks/Top.
// With it Hugging Face's loss equals the sum of the blocks' losses here, where all blocks route
// alike. Its loss is one of the tokens of all blocks, whose shares of choices sum to Top
// (transformers, load_balancing_loss_func of modeling_mixtral.py).
func (e Experts) coefficient(blocks int) float64 {
	return e.Auxiliary * float64(blocks) / float64(e.Top)
}

// Ends of Mixtral's names of tensors of a block with experts, and of the outer matrix of a
// router that has two.
var (
	mixtralRouter = regexp.MustCompile(`block_sparse_moe\.gate\.weight$`)
	outerRouter   = regexp.MustCompile(`block_sparse_moe\.gate\.outer\.weight$`)
	mixtralGate   = regexp.MustCompile(`block_sparse_moe\.experts\.(\d+)\.w1\.weight$`)
	mixtralUp     = regexp.MustCompile(`block_sparse_moe\.experts\.(\d+)\.w3\.weight$`)
	mixtralDown   = regexp.MustCompile(`block_sparse_moe\.experts\.(\d+)\.w2\.weight$`)
)

// Transformers from 5 on holds the experts of a block of Mixtral as two tensors.
const (
	packedGateUp = "mlp.experts.gate_up_proj"
	packedDown   = "mlp.experts.down_proj"
)

var mixtral = llama.FormOf(family.Form{
	Name: mixtralType, Fields: mixtralFields, Read: readMixtral, Refuses: refusesMixtral,
	Write: func(c model.Config, end int32) map[string]any {
		e, members := model.KindOf[Experts](c), llama.Write(mixtralType, "MixtralForCausalLM", c, end)
		members["num_local_experts"], members["num_experts_per_tok"] = e.Count, e.Top
		if e.Auxiliary > 0 && !e.Balanced {
			members[coefficient] = family.Fraction(e.coefficient(c.Blocks))
		}
		return members
	},
	Keep: func(members map[string]any, from files.Object, _ model.Config) {
		if v, ok := from[coefficient]; ok {
			members[coefficient] = json.RawMessage(v.JSON)
		}
	},
	Packed: &family.Packing{
		Key: "experts", End: packedGateUp,
		Names: []family.Renaming{
			{From: mixtralRouter, To: "mlp.gate.weight"}, {From: mixtralGate, To: packedGateUp}, {From: mixtralUp, To: packedGateUp}, {From: mixtralDown, To: packedDown},
		},
		Place: func(c model.Config, weight string) (index, of int64) {
			var block int
			if n, _ := fmt.Sscanf(weight, "block.%d/expert.%d.", &block, &index); n < 2 {
				return 0, 0
			}
			return index, int64(model.KindOf[Experts](c).Count)
		},
	},
})

// llamaMoE is LLaMA-MoE (Zhu et al. 2024), as the code that its checkpoints come with reads
// them (modeling_llama_moe_hf.py).
var llamaMoE = llama.FormOf(family.Form{
	Name: llamaMoEType, Unknown: "model_type llama_moe: no current program loads it, Transformers " + family.Transformers + " neither",
	Fields: llamaMoEFields, Read: readLlamaMoE, Write: writeLlamaMoE, Refuses: refusesLlamaMoE, Beside: noiseOfLlamaMoE,
	Names: func(c model.Config) []family.Renaming {
		network := "gate_network"
		if model.KindOf[Experts](c).Squashed {
			network += ".0"
		}
		return []family.Renaming{
			{From: mixtralRouter, To: "mlp.gate." + network + ".weight"}, {From: outerRouter, To: "mlp.gate.gate_network.2.weight"},
			{From: mixtralGate, To: "mlp.calculator.experts.weight_gate.$1"}, {From: mixtralUp, To: "mlp.calculator.experts.weight_up.$1"},
			{From: mixtralDown, To: "mlp.calculator.experts.weight_down.$1"},
		}
	},
})

// coefficient is the member that weighs the loss of unequal loads.
const coefficient = "router_aux_loss_coef"

// mixtralFile is the source of Mixtral's fields.
const mixtralFile = "models/mixtral/configuration_mixtral.py"

var mixtralFields = []family.Field{
	{Keys: "num_local_experts num_experts num_experts_per_tok", Use: family.Used, Source: mixtralFile},
	{Keys: coefficient + " router_jitter_noise output_router_logits", Use: family.Unused, Source: mixtralFile}, // training
}

// readMixtral returns the shape that a MixtralConfig describes.
func readMixtral(o files.Object) (model.Config, error) {
	c := model.Config{
		Family: llama.Name, Vocab: 32000, Sequence: 4096 * 32, Hidden: 4096, Blocks: 32, Heads: 32, KeyValueHeads: 8,
		Intermediate: 14336, NormEps: 1e-5, Rope: model.Rope{Base: 1e6},
	}.With(Experts{Count: 8, Top: 2})
	count, err := family.Spelling(o, "num_local_experts", "num_experts") // attribute_map
	return c, cmp.Or(err, llama.Read(o, &c), readExperts(o, &c, count, "num_experts_per_tok"))
}

// refusesMixtral says what of a model it cannot describe.
func refusesMixtral(c model.Config) error {
	switch e := model.KindOf[Experts](c); {
	case e.Scale != 0 && e.Scale != 1:
		return fmt.Errorf("moe.scale is %v, %s has 1", e.Scale, mixtralType)
	case e.Squashed:
		return fmt.Errorf("moe.router is mlp, %s has linear", mixtralType)
	}
	return nil
}

// llamaMoEBase is the base of rotary positions: no other is in its configuration, and its
// code takes none.
const llamaMoEBase = 10000

// llamaMoEFile is the source of LLaMA-MoE's fields. Its checkpoints come with the file.
const llamaMoEFile = "configuration_llama_moe.py of LLaMA-MoE"

var llamaMoEFields = []family.Field{
	{Keys: "num_experts num_selects size_experts gate_network gate_add_noise score_scale_factor", Use: family.Used, Source: llamaMoEFile},
	{Keys: "gate_type", Use: family.Fixed, Want: []any{"TopKBalancedNoisyGate"}, Source: llamaMoEFile},
	{Keys: "gate_use_softmax multiply_gate_scores", Use: family.Fixed, Want: []any{true}, Source: llamaMoEFile},
	{Keys: "calculator_type", Use: family.Fixed, Want: []any{"UniversalCalculator"}, Source: llamaMoEFile},
	{Keys: "add_weight_norm", Use: family.Fixed, Want: []any{false}, Source: llamaMoEFile},
	{Keys: "rope_parameters", Use: family.Fixed, Want: []any{nil}, Source: llamaMoEFile},
	{Keys: "auto_map", Use: family.Unused, Source: llamaMoEFile},                                                     // the code that dynmo computes
	{Keys: "gate_use_balance gate_balance_loss_weight gate_noise_epsilon", Use: family.Unused, Source: llamaMoEFile}, // training
	{Keys: "drop_tokens dropped_padding capacity_factor", Use: family.Unused, Source: llamaMoEFile},                  // another calculator
}

// readLlamaMoE returns the shape that a LlamaMoEConfig describes.
func readLlamaMoE(o files.Object) (model.Config, error) {
	c := model.Config{
		Family: llama.Name, Vocab: 32000, Sequence: 2048, Hidden: 4096, Blocks: 32, Heads: 32,
		Intermediate: 11008, NormEps: 1e-6, Rope: model.Rope{Base: llamaMoEBase},
	}.With(Experts{Count: 16, Top: 4, Squashed: true})
	err := cmp.Or(llama.Read(o, &c), readExperts(o, &c, "num_experts", "num_selects"), o.Only("gate_network", "mlp", "linear"))
	e := model.KindOf[Experts](c)
	switch {
	case err != nil:
		return c, err
	case c.Intermediate%e.Count != 0:
		return c, o.Fail("num_experts", "%d does not divide intermediate_size, %d", e.Count, c.Intermediate)
	}
	c.Intermediate /= e.Count
	network, err := o["gate_network"].Text()
	e.Squashed = err != nil || network != "linear"
	e.Scale, err = scoreScale(o, c.Blocks)
	c = c.With(e)
	return c, cmp.Or(err, equalExperts(o, c))
}

// readExperts sets how many there are, and of these how many a token goes to.
func readExperts(o files.Object, c *model.Config, count, top string) error {
	e := model.KindOf[Experts](*c)
	err := o.Dimensions(files.Dimension{Key: count, To: &e.Count, Limit: maxExperts}, files.Dimension{Key: top, To: &e.Top, Limit: maxExperts})
	switch {
	case err != nil:
	case e.Top > e.Count:
		err = o.Fail(top, "%d of %d experts (%s): want at most these", e.Top, e.Count, count)
	case e.Count*c.Blocks > maxExperts:
		err = o.Fail(count, "%d in each of %d blocks: want at most %d in all", e.Count, c.Blocks, maxExperts)
	}
	*c = c.With(e)
	return err
}

// maxExperts is the most experts of all blocks.
const maxExperts = 1 << 16

// Limits of the factor of scores. The largest moe.scale is the same.
const minScale, maxScale = 1e-6, 65536.0

// scoreScale returns what scores are multiplied by: a number, or one for each block, which
// have to be equal.
func scoreScale(o files.Object, blocks int) (float64, error) {
	const key = "score_scale_factor"
	scale := 1.0
	var each []float64
	if json.Unmarshal(o[key].JSON, &each) == nil && len(each) == blocks && !slices.ContainsFunc(each, func(x float64) bool { return x != each[0] }) {
		o = files.Object{key: {JSON: fmt.Append(nil, each[0]), At: o[key].At}}
	}
	return scale, o.Number(key, &scale, minScale, maxScale)
}

// equalExperts returns an error unless all experts are as wide as the shape says.
func equalExperts(o files.Object, c model.Config) error {
	const key = "size_experts"
	if o.Absent(key) {
		return nil
	}
	var sizes [][]int
	err := json.Unmarshal(o[key].JSON, &sizes)
	other := func(size int) bool { return size != c.Intermediate }
	if err != nil || len(sizes) != c.Blocks || slices.ContainsFunc(sizes, func(block []int) bool {
		return len(block) != model.KindOf[Experts](c).Count || slices.ContainsFunc(block, other)
	}) {
		return o.Fail(key, "%.40s…: want null, or %d for each of %d experts in %d blocks: others are not supported", o[key], c.Intermediate, model.KindOf[Experts](c).Count, c.Blocks)
	}
	return nil
}

// noiseOfLlamaMoE lists the matrices of the noise that training adds to scores, which no
// layer here has: they are kept.
func noiseOfLlamaMoE(o files.Object, c model.Config) (list []model.Weight, err error) {
	noise := true
	if err := o.Flag("gate_add_noise", &noise); err != nil || !noise {
		return nil, err
	}
	for b := range c.Blocks {
		list = append(list, model.Weight{
			Name: fmt.Sprintf("block.%d/router.noise.weight", b), HuggingFace: fmt.Sprintf("layers.%d.mlp.gate.weight_noise.weight", b),
			Shape: []int64{int64(model.KindOf[Experts](c).Count), int64(c.Hidden)},
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

func writeLlamaMoE(c model.Config, end int32) map[string]any {
	e, scaling := model.KindOf[Experts](c), llama.Scaling(c.Rope)
	if name, ok := scaling["rope_type"]; ok && c.Rope.Scaling == model.RopeLinear {
		delete(scaling, "rope_type")
		scaling["type"] = name
	}
	c.Intermediate *= e.Count
	members := llama.Write(llamaMoEType, "LlamaMoEForCausalLM", c, end)
	delete(members, "attention_dropout")
	maps.Copy(members, map[string]any{
		"gate_add_noise": false, "gate_network": e.network(), "num_experts": e.Count, "num_selects": e.Top,
		"rope_scaling": scaling, "score_scale_factor": family.Fraction(cmp.Or(e.Scale, 1)),
	})
	return members
}
