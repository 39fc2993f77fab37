// Package llama is the LLaMA family (Touvron et al. 2023). It has RMSNorm, rotary positions,
// grouped-query attention (Ainslie et al. 2023), a gated MLP (Shazeer 2020), and no biases.
package llama

import (
	"cmp"
	"fmt"

	"dynmo/src/config"
	"dynmo/src/model"
	"dynmo/src/model/family"
)

// Name is the family's name in the settings, and its Hugging Face model type.
const Name = "llama"

// Family registers LLaMA.
var Family = family.Registration{
	Settings: config.Family{
		Name: Name, Doc: "has RMSNorm, rotary positions, a gated MLP (SwiGLU), grouped-query attention and no biases",
		Settings: settings{}, Shape: shape, Check: check,
		Holds: func(c config.Config) string {
			return fmt.Sprintf("model.family=%s model.key_value_heads=%d model.intermediate=%d", Name, c.Keyed(), inside(c))
		},
	},
	Model: model.Family{
		Name: Name, Chain: model.Decoder, Weights: weights, Sampled: true,
		Shape: func(c config.Config, shape *model.Config) {
			m := config.Of[settings](c)
			shape.KeyValueHeads, shape.Intermediate, shape.NormEps, shape.Rope = c.Keyed(), c.Inside(), m.NormEps, m.rope()
		},
	},
	Forms: family.Forms{
		Describes: func(c model.Config) bool { return c.FamilyName() == Name },
		Settings: func(c model.Config) []family.Setting {
			r := c.Rope
			return []family.Setting{
				{Name: "model.key_value_heads", Value: c.KeyValueHeads}, {Name: "model.intermediate", Value: c.Intermediate}, {Name: "model.norm_eps", Value: c.NormEps},
				{Name: "model.rope_base", Value: r.Base}, {Name: "model.rope_scaling", Value: cmp.Or(r.Scaling, unscaled)},
				{Name: "model.rope_factor", Value: r.Factor}, {Name: "model.rope_low_freq_factor", Value: r.Low},
				{Name: "model.rope_high_freq_factor", Value: r.High}, {Name: "model.rope_original_max_position_embeddings", Value: r.Original},
			}
		},
		List: []family.Form{form, mistral},
	},
}

// settings are the keys of table model that LLaMA has.
type settings struct {
	KeyValueHeads int     `toml:"key_value_heads" default:"0" min:"0" max:"1048576" when:"model.family=llama" doc:"heads that have keys and values, each for as many queries; a divisor of heads; 0: as many as heads"`
	Intermediate  int     `toml:"intermediate" default:"0" min:"0" max:"16777216" when:"model.family=llama" doc:"channels inside the MLP; 0: 8/3 of hidden, rounded up to a multiple of 32"`
	NormEps       float64 `toml:"norm_eps" default:"1e-5" above:"0" max:"1" when:"model.family=llama" doc:"added to the mean square under the root of RMSNorm"`
	RopeBase      float64 `toml:"rope_base" default:"10000" above:"1" max:"1e12" when:"model.family=llama" doc:"base of the rotary positions' wavelengths (Su et al. 2021)"`
	RopeScaling   string  `toml:"rope_scaling" default:"none" oneof:"none,linear,llama3" when:"model.family=llama" doc:"what stretches the wavelengths: all by rope_factor, or as Llama 3.1 the long ones"`
	RopeFactor    float64 `toml:"rope_factor" default:"8" min:"1" max:"1e6" when:"model.rope_scaling=linear|llama3" doc:"times longer that stretched wavelengths are"`
	RopeLow       float64 `toml:"rope_low_freq_factor" default:"1" above:"0" max:"1e6" when:"model.rope_scaling=llama3" doc:"times that a wavelength fits into the original positions, below which it is stretched in full"`
	RopeHigh      float64 `toml:"rope_high_freq_factor" default:"4" above:"0" max:"1e6" when:"model.rope_scaling=llama3" doc:"times that it fits there, above which it is as it was; between the two it is stretched in part"`
	RopeOriginal  int     `toml:"rope_original_max_position_embeddings" default:"8192" min:"1" max:"1073741824" when:"model.rope_scaling=llama3" unit:"tokens" doc:"positions that the model had before it was stretched"`
}

// unscaled is the value of rope_scaling for unscaled wavelengths.
const unscaled = "none"

// rope returns the rotary positions that the settings ask for.
func (m settings) rope() model.Rope {
	r := model.Rope{Base: m.RopeBase}
	switch m.RopeScaling {
	case model.RopeLlama3:
		r.Low, r.High, r.Original = m.RopeLow, m.RopeHigh, m.RopeOriginal
		fallthrough
	case model.RopeLinear:
		r.Scaling, r.Factor = m.RopeScaling, m.RopeFactor
	}
	return r
}

// inside returns the channels inside the MLP.
func inside(c config.Config) int {
	if n := config.Of[settings](c).Intermediate; n > 0 {
		return n
	}
	return (8*c.Model.Hidden + 95) / 96 * 32
}

// shape sets the sizes of LLaMA's layers: MLPs of three matrices (gate, up and down), and heads
// with keys.
func shape(c config.Config, s *config.Shape) {
	s.Inside, s.Matrices = inside(c), 3
	if n := config.Of[settings](c).KeyValueHeads; n > 0 {
		s.Keyed = n
	}
}

func check(c config.Config, rule config.Rule) {
	m := config.Of[settings](c)
	rule(c.Model.Heads%c.Keyed() != 0, "model.key_value_heads to divide model.heads", "model.key_value_heads model.heads")
	rule(c.Model.Hidden/c.Model.Heads%2 != 0, "an even number of channels of a head, whose halves rotate", "model.hidden model.heads")
	rule(m.RopeScaling == model.RopeLlama3 && m.RopeLow >= m.RopeHigh, "model.rope_low_freq_factor to be below model.rope_high_freq_factor",
		"model.rope_low_freq_factor model.rope_high_freq_factor")
}
