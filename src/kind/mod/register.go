// Package mod is a mixture of depths: every second block takes some of the tokens, the
// others pass by (Raposo et al. 2024).
package mod

import (
	"fmt"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// Kind registers a mixture of depths. A routed block decides within itself which tokens it
// takes (see Depths). The same number in every step is no news; the number that a
// predictor takes is.
var Kind = dynamic.Registration{
	Settings: settings,
	New: func(c config.Config) dynamic.Kind {
		if config.Of[options](c).Route == "predictor" {
			return &routing{}
		}
		return dynamic.Nothing{}
	},
	Extension: func(c config.Config) model.Extension {
		m := config.Of[options](c)
		return Depths{Capacity: m.Capacity, Predictor: m.Route == "predictor", Threshold: m.Threshold, One: m.Gate == "one", Auxiliary: m.Auxiliary}
	},
	Forcing: forcing,
	Workload: dynamic.Making{Every: 1, Routed: true, Of: func(c config.Config) dynamic.Workload {
		return workload(config.Of[simulated](c))
	}},
	Holds: func(c config.Config) string {
		m := config.Of[options](c)
		return fmt.Sprintf("mod.capacity=%v mod.route=%s", m.Capacity, m.Route)
	},
	Exported: func(config.Config) []string {
		return []string{"the second block, the fourth, … take all tokens in others; here those that router and predictor say, with out = (1-g)·inp + g·block(inp), g = sigmoid(inp·router) or 1"}
	},
	Counts:   counts,
	Sentence: sentence,
	Changes: map[string]func(map[string]float64) string{forcedChange: tellForced, "mod": func(of map[string]float64) string {
		return fmt.Sprintf("routed blocks take %s of the tokens; predictor accuracy %s",
			dynamic.Percent(of["taken"]), dynamic.Percent(of["right"]))
	}},
	Few: dynamic.Few{
		Blocks:  func(*config.Config) int { return 2 },
		Taken:   func(v dynamic.Values) (taken, there float64) { return v.Get("taken"), v.Get("there") },
		Correct: correct,
	},
}

// correct adjusts the costs of routed blocks whose predictor took another share of the tokens in
// the measurement than it will take. The work on tokens is scaled from the first block's cost.
// Routing costs the same as before.
func correct(few config.Config, layers []cost.Layer, taken float64) {
	m := config.Of[options](few)
	if m.Route != "predictor" {
		return
	}
	var block cost.Stage
	for _, l := range layers {
		if l.Name == "block.0" || strings.HasPrefix(l.Name, "block.0.") {
			block = block.Plus(l.Stage())
		}
	}
	for i, d := range model.FromConfig(few).Chain() {
		if d.Form == Routed {
			s := layers[i].Stage().Plus(block.Scale(m.Capacity - taken))
			least := block.Scale(m.Capacity)
			layers[i] = layers[i].WithSeconds(s.Max(least))
		}
	}
}
