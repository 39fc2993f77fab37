// Package prune is gradual global magnitude pruning (Zhu & Gupta 2017; paper, algorithm 2).
package prune

import (
	"dynmo/src/config"
	"dynmo/src/dynamic"
)

// Kind registers pruning.
var Kind = dynamic.Registration{
	Settings: settings,
	New:      func(c config.Config) dynamic.Kind { return newPruning(c) },
	Workload: dynamic.Making{Of: func(c config.Config) dynamic.Workload { return workload{newPruning(c)} }},
}
