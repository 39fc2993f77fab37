// Package prune is gradual global magnitude pruning (Zhu & Gupta 2017; paper, algorithm 2).
package prune

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
)

// Kind registers pruning.
var Kind = dynamic.Registration{
	Settings: settings,
	New:      func(c config.Config) dynamic.Kind { return newPruning(c) },
	Forcing:  forcing,
	Sentence: func(s dynamic.Seen) string { return dynamic.Percent(s.Sparsity) + " of the prunable weights pruned" },
	Words: func(s dynamic.Seen) (list []string) {
		if s.Sparsity > 0 {
			list = append(list, "sparsity: "+dynamic.Percent(s.Sparsity))
		}
		return list
	},
	Changes: map[string]func(map[string]float64) string{"prune": func(of map[string]float64) string {
		text := dynamic.Percent(of["sparsity"]) + " of the prunable weights pruned"
		if of["prunable"] > 0 {
			text += fmt.Sprintf(", %s of %s left", dynamic.Large(of["kept"]), dynamic.Large(of["prunable"]))
		}
		return text
	}},
	Workload: dynamic.Making{Of: func(c config.Config) dynamic.Workload { return workload{newPruning(c)} }},
}
