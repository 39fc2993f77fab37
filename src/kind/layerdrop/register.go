// Package layerdrop is progressive layer dropping (Zhang & He 2020, in DeepSpeed's form). In a step
// each block is kept at random, an early block more often than a late one. All blocks are kept less
// often as training goes on.
package layerdrop

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// Kind registers progressive layer dropping.
var Kind = dynamic.Registration{
	Settings: settings,
	New: func(c config.Config) dynamic.Kind {
		return &draws{schedule: scheduleOf(c), seed: c.Run.Seed}
	},
	Extension: func(config.Config) model.Extension { return blockGates{} },
	Workload: dynamic.Making{Every: 1, Of: func(c config.Config) dynamic.Workload {
		return workload{scheduleOf(c)}
	}},
	Holds: func(c config.Config) string {
		s := config.Of[options](c)
		return fmt.Sprintf("layerdrop.theta=%v layerdrop.gamma=%v", s.Theta, s.Gamma)
	},
}

func scheduleOf(c config.Config) schedule {
	return schedule{config.Of[options](c), c.Model.Blocks}
}

// workload is a run in which blocks have their mean cost over draws.
type workload struct{ schedule }

// Costs change with every step.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	w.blocks = c.Count
	return c.Change(func(l *cost.Layer, b dynamic.Block) { dynamic.Slower(l, w.share(step, b.Index)) })
}
