package study

import (
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
)

// Gain is other settings under which a step would be shorter.
type Gain struct {
	Sets   []string // what differs from the settings at hand, each table.key=value as --set takes it
	Factor float64  // the step at hand over that step
	MadeUp bool     // the costs of layers that are cut finer are made up from those of whole ones
}

// Gains returns what would make a step at least 1 % shorter than the settings of o do: the best settings that
// Advise finds with the present stages and replicas, and the best other stages and replicas of the same ranks
// that are better still. The list is empty if nothing that was tried would. Errors are the settings'.
func Gains(t cost.Table, o Options) (list []Gain, err error) {
	present, err := Plan(t, o)
	if err != nil {
		return nil, err
	}
	best := present.Seconds * (1 - worthSeconds)
	add := func(sets []string, step float64, madeUp bool) {
		list = append(list, Gain{sets, present.Seconds / step, madeUp})
		best = min(best, step*(1-worthSeconds))
	}
	silent := func(int64, int64) {}
	if advice := Advise(t, o, present, nil, silent); len(advice) > 0 && advice[0].Step <= best {
		add(advice[0].Sets, advice[0].Step, advice[0].MadeUp)
	}
	p := o.Config.Parallel
	meshes, _, err := Meshes(t, o, p.Stages*p.Replicas, p.Replicas*p.Microbatches*p.MicrobatchSize, silent)
	if err != nil { // memory allows none
		return list, nil
	}
	for _, m := range meshes {
		if m.Stages != p.Stages && m.Step <= best {
			differ := config.Differences([]config.Config{o.Config, m.Config})
			sets := slices.DeleteFunc(slices.Clone(m.Sets), func(set string) bool {
				name, _, _ := strings.Cut(set, "=")
				return !slices.ContainsFunc(differ, func(d config.Difference) bool { return d.Name == name })
			})
			add(sets, m.Step, m.MeshRow.MadeUp)
			break
		}
	}
	return list, nil
}
