package layerdrop

import "dynmo/src/config"

// options is progressive layer dropping (Zhang & He 2020).
type options struct {
	Theta float64 `toml:"theta" default:"0.5" above:"0" max:"1" doc:"share of the steps in which the last block is kept in the end; 1 drops none"`
	Gamma float64 `toml:"gamma" default:"0.001" min:"0" max:"10" doc:"how fast the shares fall from 1: by e in 1/gamma steps"`
}

// settings is what config knows of progressive layer dropping.
var settings = config.Kind{
	Name: "layerdrop", Structural: true,
	Tables: []config.Table{{
		Name:  "layerdrop",
		Tag:   `when:"dynamic.kind=layerdrop" doc:"progressive layer dropping (Zhang & He 2020): in a step a block is left out at random, a later block more often"`,
		Place: 6, Settings: options{},
	}},
	Check: func(c config.Config, rule config.Rule) {
		rule(c.Dynamic.Has("layerdrop") && c.Model.Grain != "block" && c.Model.Grain != "half", `model.grain = "block" or "half": parts in another grain pass on more than a sum`, "model.grain dynamic.kind")
	},
	Remarks: func(c config.Config) []string {
		if s := config.Of[options](c); s.Theta == 1 || s.Gamma == 0 {
			return []string{"layerdrop changes no layer's cost: with layerdrop.theta = 1, or layerdrop.gamma = 0, every block is kept in every step"}
		}
		return nil
	},
}
