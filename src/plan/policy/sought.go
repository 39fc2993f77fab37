package policy

import (
	"dynmo/src/balance"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
)

// sought is the best layout of a map, as it was when it was sought.
type sought struct {
	layout.Layout // without cuts: none fits
	of            partition.Map
	step          int // of the balancer; 0: it has not been sought
}

// seek seeks the best layout of a planner's map if it is time to: again after so many
// steps as moves are expected to last and when a changed model has settled, for that
// takes longer than other decisions. Without cuts, none fits.
func (b *balancer) seek(o *sought, p *search.Planner) {
	if o.step == 0 || o.step+horizon <= b.Steps || b.Settles && o.step < b.Steps || o.of != p.Map {
		*o = sought{of: p.Map, step: b.Steps}
		if cuts, err := p.BestCuts(b.costs.Table); err == nil {
			o.Layout = p.Layout(b.costs.Table, cuts)
		}
	}
}

// bestOfThisMap returns the best layout of the present map where the exact partition says little
// about the best step: it takes each of a stage's chunks for a stage of its own, and
// knows no gradient sum over replicas.
func (b *balancer) bestOfThisMap() (layout.Layout, bool) {
	p := b.planner
	if p.Config.Balance.Kind != "partition" || p.By != balance.ByTime || p.Map.Chunks == 1 && p.Mesh.Replicas <= 1 {
		return layout.Layout{}, false
	}
	b.seek(&b.searched, p)
	return b.searched.Layout, b.searched.Cuts != nil && p.Fits(b.costs.Table, b.searched.Layout)
}

// bestOfOtherMap returns the best layout of the other map that settings allow, if they allow
// one and it fits.
func (b *balancer) bestOfOtherMap() (layout.Layout, bool) {
	q := b.planner.Other
	if q == nil {
		return layout.Layout{}, false
	}
	b.seek(&b.aside, q)
	return b.aside.Layout, b.aside.Cuts != nil && q.Fits(b.costs.Table, b.aside.Layout)
}
