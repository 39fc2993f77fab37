package search

import (
	"fmt"
	"math"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// canFold reports whether costs decide if a stage holds one chunk of the chain or two in a V.
// The schedule must follow from costs, and layers must be free to move anywhere: a V has
// other layers on nearly every stage. Diffusion moves layers to neighbours only.
func canFold(c config.Config) bool {
	kind := schedule.Kind(c.Schedule.Kind)
	return (kind == schedule.KindAuto || kind == schedule.KindList) &&
		c.Balance.Kind == "partition" && balance.By(c.Balance.By) == balance.ByTime &&
		c.Parallel.Stages > 1 && c.Layers() >= 2*c.Parallel.Stages
}

// selectMap returns the planner of the same settings for a map: p or p.Other.
func (p *Planner) selectMap(m partition.Map) *Planner {
	if p.Other != nil && p.Other.Map == m {
		return p.Other
	}
	return p
}

// Match returns the planner of the same settings for the stages, microbatches, ranks and map of l. The
// error says which number is not possible.
func (p *Planner) Match(l layout.Layout) (*Planner, error) {
	q, err := p.Resize(l.Stages(), l.Schedule.Microbatches)
	if err != nil {
		return nil, err
	}
	return q.onRanksOf(l).selectMap(l.Map()), nil
}

// Accepts returns an error unless layout l fits the planner or p.Other: l must be valid, with the same
// stages, chunks, replicas, microbatches and ranks. It does not check that the cuts and the schedule
// are the ones that a search would find.
func (p *Planner) Accepts(l layout.Layout) error {
	if err := l.Check(p.Config.Layers()); err != nil {
		return err
	}
	q := p.selectMap(l.Map())
	if l.Mesh != q.Mesh || l.Map() != q.Map || l.Schedule.Microbatches != q.Microbatches {
		return fmt.Errorf("%d stages of %d chunks, %d replicas and %d microbatches, want %d of %d, %d and %d", l.Stages(), l.Map().Chunks,
			l.Mesh.Replicas, l.Schedule.Microbatches, q.Mesh.Stages, q.Map.Chunks, q.Mesh.Replicas, q.Microbatches)
	}
	if want := q.layout(nil, q.base); !l.SameRanks(want) {
		return fmt.Errorf("ranks %v, want %v", l.Ranks, want.Ranks)
	}
	return nil
}

// capsByChunk divides the microbatches that may be in flight on each stage of a V between
// the stage's two chunks. Each chunk holds memory for the most microbatches that it ever
// has in flight, so that a common cap would not bound the memory. The shares are those of
// 1F1B over the virtual stages: a later chunk waits less for its gradient.
func (p *Planner) capsByChunk(caps []int) []int {
	n := p.Map.Virtual()
	list := make([]int, n)
	for stage, limit := range caps {
		first, second := p.Map.Place(stage, 0), p.Map.Place(stage, 1)
		share := float64(n-second) / float64(n-first+n-second)
		list[second] = min(max(1, int(math.Round(share*float64(limit)))), p.Microbatches)
		list[first] = min(limit-list[second], p.Microbatches)
		list[second] = min(limit-list[first], p.Microbatches)
	}
	return list
}

// BestLayout returns the layout with the shortest predicted step that the searches find. It tries one
// chunk on each stage, and two in a V where the settings allow both. If no layout fits the memory, the
// error names the smallest limit that would do.
func (p *Planner) BestLayout(t cost.Table) (layout.Layout, error) {
	cuts, err := p.BestCuts(t)
	if err == nil {
		return p.bestOfMaps(t, p.Layout(t, cuts)), nil
	}
	if q := p.Other; q != nil {
		if cuts, otherErr := q.BestCuts(t); otherErr == nil {
			return q.Layout(t, cuts), nil
		}
	}
	return layout.Layout{}, p.limited(t, err)
}

// bestOfMaps returns the best layout of the other map if its step is shorter than the step of l, a
// layout of this map. Otherwise it returns l.
func (p *Planner) bestOfMaps(t cost.Table, l layout.Layout) layout.Layout {
	if p.Other == nil {
		return l
	}
	cuts, err := p.Other.BestCuts(t)
	if err != nil {
		return l
	}
	return p.FasterLayout(t, l, p.Other.Layout(t, cuts))
}

// FasterLayout returns the second of two layouts if its predicted step is more than 0.1 % faster than
// that of the first, else the first. A smaller difference may be noise.
func (p *Planner) FasterLayout(t cost.Table, first, second layout.Layout) layout.Layout {
	if p.Seconds(t, second) < p.Seconds(t, first)*(1-leastImprovement) {
		return second
	}
	return first
}

// BalancedLayout returns BestLayout if the settings balance time (balance.by). If they balance
// parameters it returns the layout whose most loaded stage has the fewest. The error says that no cuts
// fit the memory.
func (p *Planner) BalancedLayout(t cost.Table) (layout.Layout, error) {
	if p.By == balance.ByTime {
		return p.BestLayout(t)
	}
	r, err := balance.Partition(p.Problem(t))
	if err != nil {
		return layout.Layout{}, err
	}
	return p.Layout(t, r.Cuts), p.memoryError(t, r.Cuts)
}
