package report

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/record"
)

// places has the ranks and hosts of stages over time. The zero places has none.
type places struct {
	phases record.Series // each with a layout
	hosts  []string      // by rank of the launched world, valid from step since; nil: not known
	since  int
}

// places returns the places of the run's stages. Hosts of earlier starts are not known. If ranks
// have the same numbers as stages and hosts are not known, the result is empty.
func (r Run) places() places {
	p := places{}
	told := false
	for _, phase := range r.Costs {
		if phase.Run == nil {
			continue
		}
		if phase.Run.Resumed {
			p.since = phase.Step
		}
		told = told || phase.Run.Layout.Ranks != nil
		p.phases = append(p.phases, phase)
	}
	if r.Provenance != nil {
		p.hosts = r.Provenance.Hosts
	}
	if !told && p.hosts == nil {
		return places{}
	}
	return p
}

// of returns the place of a stage in a step, for one replica, or for all replicas if replica is
// negative. It returns "" if the place is not known.
func (p places) of(step, stage, replica int) string {
	i, _ := slices.BinarySearchFunc(p.phases, step+1, func(phase record.Phase, step int) int { return phase.Step - step })
	if i == 0 || step >= p.phases[i-1].Step+p.phases[i-1].Steps {
		return ""
	}
	phase := p.phases[i-1]
	l := phase.Run.Layout
	if stage >= l.Mesh.Stages || replica >= l.Mesh.Replicas {
		return ""
	}
	var ranks []int
	var hosts []string
	for d := range l.Mesh.Replicas {
		if replica >= 0 && d != replica {
			continue
		}
		rank := l.World(l.Mesh.Rank(stage, d))
		ranks = append(ranks, rank)
		if phase.Step >= p.since && rank < len(p.hosts) {
			hosts = append(hosts, p.hosts[rank])
		}
	}
	slices.Sort(ranks)
	text := fmt.Sprintf("rank %d", ranks[0])
	if len(ranks) > 1 {
		text = "ranks " + record.Ranges(ranks)
	}
	if hosts != nil {
		slices.Sort(hosts)
		text += " on " + strings.Join(slices.Compact(hosts), ", ")
	}
	return text
}
