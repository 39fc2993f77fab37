package study

import (
	"cmp"
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
// that are better still. Settings whose costs are made up come last, and only if they are better than those
// of measured costs. The list is empty if nothing that was tried would. Errors are the settings'.
func Gains(t cost.Table, o Options) (list []Gain, err error) {
	present, err := Plan(t, o)
	if err != nil {
		return nil, err
	}
	silent := func(int64, int64) {}
	advice := Advise(t, o, present, nil, silent)
	slices.SortStableFunc(advice, func(a, b Advice) int { return cmp.Compare(a.Step, b.Step) })
	p := o.Config.Parallel
	meshes, _, err := Meshes(t, o, p.Stages*p.Replicas, p.Replicas*p.Microbatches*p.MicrobatchSize, silent)
	if err != nil {
		meshes = nil // memory allows none
	}
	meshes = slices.DeleteFunc(meshes, func(m MeshPlan) bool { return m.Stages == p.Stages })
	here := present.Seconds * (1 - worthSeconds) // a step of the present stages and replicas must be as short
	anywhere := here                             // and a step of others
	add := func(sets []string, step float64, madeUp bool) {
		list = append(list, Gain{sets, present.Seconds / step, madeUp})
		anywhere = min(anywhere, step*(1-worthSeconds))
	}
	for _, madeUp := range []bool{false, true} {
		if i := slices.IndexFunc(advice, func(a Advice) bool { return a.MadeUp == madeUp }); i >= 0 && advice[i].Step <= here {
			here = advice[i].Step * (1 - worthSeconds)
			add(advice[i].Sets, advice[i].Step, madeUp)
		}
		if i := slices.IndexFunc(meshes, func(m MeshPlan) bool { return m.MeshRow.MadeUp == madeUp }); i >= 0 && meshes[i].Step <= anywhere {
			add(meshSets(o.Config, meshes[i]), meshes[i].Step, madeUp)
		}
	}
	return list, nil
}

// meshSets returns the settings of a mesh that differ from those at hand.
func meshSets(have config.Config, m MeshPlan) []string {
	differ := config.Differences([]config.Config{have, m.Config})
	return slices.DeleteFunc(slices.Clone(m.Sets), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return !slices.ContainsFunc(differ, func(d config.Difference) bool { return d.Name == name })
	})
}
