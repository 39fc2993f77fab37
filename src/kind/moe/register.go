// Package moe is a mixture of experts: a block has several MLPs, and each token takes a few of
// them (Jiang et al. 2024; paper, section 2.2.1).
package moe

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// Kind registers experts.
var Kind = dynamic.Registration{
	Settings: settings,
	New:      func(config.Config) dynamic.Kind { return &loads{} },
	Extension: func(c config.Config) model.Extension {
		m := config.Of[options](c)
		e := Experts{
			Count: m.Experts, Top: m.Top, Balanced: m.Balance == "s-base", Auxiliary: m.Aux, Z: m.Z, Capacity: m.Capacity,
			Deviation: m.Deviation, Rounds: m.Rounds, Scale: m.Scale, Squashed: m.Router == "mlp",
		}
		if c.Model.Grain == "expert" {
			e.Groups = m.Groups
		}
		if spread(c) {
			e.BlockRows, e.Spare = m.BlockRows, m.Spare
		}
		return e
	},
	Placing:  placed,
	Held:     held,
	Contest:  contest,
	Forcing:  forcing,
	Changes:  map[string]func(map[string]float64) string{forcedChange: tellForced, "moe": tellLoads},
	Workload: dynamic.Making{Every: 1, Routed: true, Of: recorded, Placing: simulatedPlacing},
	Holds: func(c config.Config) string {
		m := config.Of[options](c)
		text := fmt.Sprintf("moe.experts=%d moe.top=%d moe.intermediate=%d moe.balance=%s moe.capacity=%v", m.Experts, m.Top, c.Inside(), m.Balance, m.Capacity)
		if c.Model.Grain == "expert" {
			text += fmt.Sprintf(" moe.groups=%d", m.Groups)
		}
		if m.Router != "linear" {
			text += " moe.router=" + m.Router
		}
		if spread(c) {
			text += fmt.Sprintf(" parallel.experts=spread parallel.replicas=%d", c.Parallel.Replicas)
			if m.BlockRows > 0 {
				text += fmt.Sprintf(" moe.block_rows=%d moe.spare=%d", m.BlockRows, m.Spare)
			}
		}
		return text
	},
	Had:  had,
	Lean: lean,
	Exported: func(c config.Config) (list []string) {
		m := config.Of[options](c)
		if m.Balance == "s-base" {
			list = append(list, `moe.balance = "s-base": others send a token to its most probable experts, by weights that add up to 1, not to balanced ones by their probabilities`)
		}
		if m.Capacity > 0 {
			list = append(list, fmt.Sprintf("moe.capacity = %v: others drop no assignment", m.Capacity))
		}
		return list
	},
	Forms:    forms,
	Counts:   counts,
	Sentence: sentence,
	Words:    words,
	// Blocks with experts are large: one is enough where all take all tokens.
	Few: dynamic.Few{Blocks: func(*config.Config) int { return 1 }},
}

// Fewer returns the settings of a model with n experts in a block, at least as many as a token goes
// to.
func Fewer(c config.Config, n int) (config.Config, error) {
	m := config.Of[options](c)
	if !c.Dynamic.Has("moe") || n < m.Top || n > m.Experts {
		return c, fmt.Errorf("%d experts: want dynamic.kind with moe, and moe.top = %d to moe.experts = %d", n, m.Top, m.Experts)
	}
	m.Experts = n
	config.Set(&c, m)
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("%d experts: %w", n, err)
	}
	return c, nil
}
