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

// Match returns the planner of the same settings for the stages, microbatches, ranks and map
// of a layout.
func (p *Planner) Match(l layout.Layout) (*Planner, error) {
	q, err := p.Resize(l.Stages(), l.Schedule.Microbatches)
	if err != nil {
		return nil, err
	}
	return q.onRanksOf(l).selectMap(l.Map()), nil
}

// Accepts returns an error unless the planner, or the planner of the other map, could have
// made a layout.
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

// BestLayout returns the layout with the shortest predicted step that the searches find. It
// tries one chunk on each stage, and two in a V where the settings allow both.
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

// FasterLayout returns the second of two layouts if its step is faster by more than noise,
// else the first.
func (p *Planner) FasterLayout(t cost.Table, first, second layout.Layout) layout.Layout {
	if p.Seconds(t, second) < p.Seconds(t, first)*(1-leastImprovement) {
		return second
	}
	return first
}

// BalancedLayout returns the best layout if the settings balance time. Otherwise it returns the
// layout of the exact partition of the balanced quantity.
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
