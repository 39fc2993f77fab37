package mod

import (
	"fmt"

	"dynmo/src/config"
)

// options is a mixture of depths (Raposo et al. 2024).
type options struct {
	Capacity  float64 `toml:"capacity" shape:"true" default:"0.125" above:"0" max:"1" doc:"share of a sequence's tokens that a routed block's router puts first, rounded up to a token"`
	Route     string  `toml:"route" shape:"true" default:"topk" oneof:"topk,predictor" doc:"which tokens the block takes: those that are first, always as many; or those that a small MLP, which learns who is first, takes for one, so that counts vary"`
	Threshold float64 `toml:"threshold" default:"0.5" min:"0" max:"1" when:"mod.route=predictor" doc:"probability of being first, as the predictor has it, above which a token is taken"`
	Gate      string  `toml:"gate" default:"sigmoid" oneof:"sigmoid,one" doc:"weight of what the block makes of a token, beside the token as it was: the sigmoid of the router's logit; or 1, by which the router learns nothing"`
	Auxiliary float64 `toml:"auxiliary" default:"0.01" min:"0" max:"1000" doc:"weight of the loss by which the router's sigmoid learns who is first; it is not part of the loss that is reported"`
}

// simulated is what a simulated run assumes.
type simulated struct {
	Tokens float64 `toml:"mod_tokens" default:"0.112" min:"0" max:"1" when:"dynamic.kind=mod" doc:"share of the tokens that a routed block takes; a small run whose predictor learned an eighth (Raposo et al. 2024) took 0.112 (results/mod-tokens.txt)"`
	Noise  float64 `toml:"mod_noise" default:"0.16" min:"0" max:"10" when:"dynamic.kind=mod" doc:"relative deviation of that share by step and microbatch: that of the same run; the paper says 0.18 (section 2.2)"`
}

// settings is what config knows of a mixture of depths.
var settings = config.Kind{
	Name: "mod", Structural: true, Subset: true,
	Tables: []config.Table{
		{Name: "mod", Tag: `only:"train" when:"dynamic.kind=mod" doc:"a mixture of depths: every second block takes some of the tokens, the others pass by it"`, Place: 5, Settings: options{}},
		{Name: "simulate", Place: 5, Settings: simulated{}},
	},
	Check: func(c config.Config, rule config.Rule) {
		rule(c.Dynamic.Has("mod") && c.Model.Grain != "block" && c.Balance.Kind == "layout",
			`model.grain = "block": the notation of a layout has one length for all blocks, and routed ones stay whole`, "balance.kind model.grain dynamic.kind")
	},
	Remarks: remarks,
	Shape:   func(c config.Config, s *config.Shape) { s.Whole += c.Model.Blocks / 2 },
}

// remarks returns sentences on settings that work, but route nothing.
func remarks(c config.Config) (list []string) {
	m := config.Of[options](c)
	if m.Capacity == 1 && m.Route == "topk" {
		list = append(list, "mod changes no layer's cost: mod.capacity = 1 takes every token into the routed blocks")
	}
	if c.Model.Blocks < 2 {
		list = append(list, fmt.Sprintf("mod in dynamic.kind has no effect: model.blocks = %d has no second block", c.Model.Blocks))
	}
	if m.Route == "predictor" && m.Threshold == 0 {
		list = append(list, "mod.threshold = 0 lets every token into the routed blocks: a probability is above 0")
	}
	if m.Route == "predictor" && m.Threshold == 1 {
		list = append(list, "mod.threshold = 1 lets no token into the routed blocks: no probability is above 1")
	}
	if c.Model.Weights != "" {
		list = append(list, fmt.Sprintf("model.weights = %q has nothing for routers: what these learn begins as without a file", c.Model.Weights))
	}
	return list
}
