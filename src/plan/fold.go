package plan

import (
	"math"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// folds reports whether settings leave it to costs if a stage holds one chunk of the
// chain or two in a V: where the schedule follows from costs, and layers may move
// anywhere, for a V has other layers on nearly every stage. Diffusion knows one chunk.
func folds(c config.Config) bool {
	kind := schedule.Kind(c.Schedule.Kind)
	return (kind == schedule.KindAuto || kind == schedule.KindList) &&
		c.Balance.Kind == "partition" && balance.By(c.Balance.By) == balance.ByTime &&
		c.Parallel.Stages > 1 && c.Layers() >= 2*c.Parallel.Stages
}

// of returns the planner of the same settings for a map: itself, or the other one.
func (p *Planner) of(m partition.Map) *Planner {
	if p.other != nil && p.other.Map == m {
		return p.other
	}
	return p
}

// Of returns the planner of the same settings for a layout.
func (p *Planner) Of(l layout.Layout) (*Planner, error) {
	q, err := p.With(l.Stages(), l.Schedule.Microbatches)
	if err != nil {
		return nil, err
	}
	return q.On(l.Ranks).of(l.Map()), nil
}

// apart returns by virtual stage how many microbatches may be in flight in a V under
// caps by stage where memory is short: it is held for as many as each chunk ever has,
// which together may be more than are in flight at a time. A stage's are shared out
// as 1F1B's over as many stages would be, for what comes later on the way forward waits
// less for its gradient.
func (p *Planner) apart(caps []int) []int {
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

// Best returns the layout with the shortest predicted step that the searches find, of
// one chunk on each stage or of two where settings allow both.
func (p *Planner) Best(t cost.Table) (layout.Layout, error) {
	cuts, err := p.Cuts(t)
	if err == nil {
		return p.beside(t, p.layout(cuts, p.Schedule(t, cuts))), nil
	}
	if q := p.other; q != nil {
		if cuts, otherErr := q.Cuts(t); otherErr == nil {
			return q.layout(cuts, q.Schedule(t, cuts)), nil
		}
	}
	return layout.Layout{}, err
}

// beside returns the best layout of the other map if a step takes less in it than in
// a layout of this one, else that layout.
func (p *Planner) beside(t cost.Table, l layout.Layout) layout.Layout {
	if p.other == nil {
		return l
	}
	cuts, err := p.other.Cuts(t)
	if err != nil {
		return l
	}
	return p.shorter(t, l, p.other.layout(cuts, p.other.Schedule(t, cuts)))
}

// shorter returns the second of two layouts if a step surely takes less in it than in
// the first, else the first.
func (p *Planner) shorter(t cost.Table, first, second layout.Layout) layout.Layout {
	if p.seconds(t, second.Cuts, second.Schedule) < p.seconds(t, first.Cuts, first.Schedule)*(1-worth) {
		return second
	}
	return first
}

// aside is the best layout of a map, as it was when it was sought.
type aside struct {
	layout.Layout
	step int // of the balancer; 0: it has not been sought
}

// seek seeks the best layout of a planner's map if it is time to: again after so many
// steps as moves are expected to last and when a changed model has settled, for that
// takes longer than other decisions. Without cuts, none fits.
func (b *balancer) seek(o *aside, p *Planner) {
	if o.step == 0 || o.step+horizon <= b.Steps || b.Settles && o.step < b.Steps || o.Map() != p.Map {
		*o = aside{p.layout(nil, p.base), b.Steps}
		if cuts, err := p.Cuts(b.costs.Table); err == nil {
			o.Layout = p.layout(cuts, p.Schedule(b.costs.Table, cuts))
		}
	}
}

// wide returns the best layout of the present map where the exact partition says little
// about the best step: it takes each of a stage's chunks for a stage of its own, and
// knows no gradient sum over replicas.
func (b *balancer) wide() (layout.Layout, bool) {
	p := b.planner
	if p.config.Balance.Kind != "partition" || p.by != balance.ByTime || p.Map.Chunks == 1 && p.Mesh.Replicas <= 1 {
		return layout.Layout{}, false
	}
	b.seek(&b.searched, p)
	return b.searched.Layout, b.searched.Cuts != nil && p.fits(b.costs.Table, b.searched.Cuts, b.searched.Schedule)
}

// other returns the best layout of the other map that settings allow, if they allow
// one and it fits.
func (b *balancer) other() (layout.Layout, bool) {
	q := b.planner.other
	if q == nil {
		return layout.Layout{}, false
	}
	b.seek(&b.aside, q)
	return b.aside.Layout, b.aside.Cuts != nil && q.fits(b.costs.Table, b.aside.Cuts, b.aside.Schedule)
}
