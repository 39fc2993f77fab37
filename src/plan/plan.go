package plan

import (
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Kinds are the schedules that Others tries: all that need no file.
var Kinds = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved,
	schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV, schedule.KindList,
}

// Others returns what every kind of schedule makes of the costs, each at its own
// best cuts. Kinds that stages, microbatches, layers or memory do not allow are
// left out.
func Others(t cost.Table, c config.Config, network sim.Network, fixed FixedBytes) []Plan {
	var list []Plan
	for _, kind := range Kinds {
		c.Schedule.Kind = string(kind)
		if c.Validate() != nil {
			continue
		}
		p, err := New(c, network, fixed)
		if err != nil {
			continue
		}
		cuts, err := p.Cuts(t)
		if err != nil {
			continue
		}
		if other, err := p.At(cost.Phase{Table: t}, cuts); err == nil {
			list = append(list, other)
		}
	}
	return list
}
