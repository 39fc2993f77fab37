package attention

import "dynmo/src/config"

// options is attention within hash buckets (Pagliardini et al. 2023; paper, section 2.2).
type options struct {
	Buckets int    `toml:"buckets" shape:"true" default:"16" min:"1" doc:"buckets that the queries and keys of a head are hashed into, a power of two of at most model.sequence: a query sees the keys of its own; 1 is dense"`
	Keys    string `toml:"keys" shape:"true" default:"shared" oneof:"shared,own" doc:"what a token's key is: its query over the query's length, as Pagliardini et al. train language models, so that every token sees itself; or a matrix's of its own, as in GPT-2 and LLaMA, by which a query may see no key and attend to nothing"`
}

// simulated is what a simulated run assumes.
type simulated struct {
	Sparsest float64 `toml:"density_least" default:"0.2" min:"0" max:"1" when:"dynamic.kind=attention" doc:"smallest mean density of a layer's scores, as a small run in 16 buckets has them (results/attention-density.txt)"`
	Densest  float64 `toml:"density_most" default:"0.32" min:"0" max:"1" when:"dynamic.kind=attention" doc:"largest mean density of a layer's scores"`
	Noise    float64 `toml:"density_noise" default:"0.09" min:"0" max:"10" when:"dynamic.kind=attention" doc:"deviation of a density's logarithm from step to step"`
}

// settings is what config knows of sparse attention.
var settings = config.Kind{
	Name: "attention", Structural: true,
	Tables: []config.Table{
		{Name: "attention", Tag: `only:"train" when:"dynamic.kind=attention" doc:"attention within hash buckets"`, Place: 3, Settings: options{}},
		{Name: "simulate", Place: 2, Settings: simulated{}},
	},
	Check: func(c config.Config, rule config.Rule) {
		s, on, b := config.Of[simulated](c), c.Dynamic.Has("attention"), config.Of[options](c).Buckets
		rule(on && c.Keyed() != c.Model.Heads, "as many key-value heads as heads beside attention, whose buckets are of each head's own keys",
			"model.key_value_heads dynamic.kind")
		rule(on && c.Model.Weights != "" && config.Of[options](c).Keys == "shared", `attention.keys = "own" beside model.weights: files of others have queries and keys, and a model with shared ones has no keys`, "model.weights attention.keys")
		rule(s.Densest < s.Sparsest, "simulate.density_most to be at least simulate.density_least", "simulate.density_most simulate.density_least")
		rule(on && (b&(b-1) != 0 || b > c.Model.Sequence), "a power of two, at most model.sequence", "attention.buckets model.sequence")
		rule(on && c.Dynamic.TakesSubsets(), "attention without exit and mod: its buckets are of whole sequences", "dynamic.kind")
	},
}
