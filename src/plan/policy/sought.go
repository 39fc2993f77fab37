package policy

import (
	"dynmo/src/balance"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
)

// sought is the best layout of a map at the step of its search.
type sought struct {
	layout.Layout // without cuts if no cuts fit
	of            partition.Map
	step          int // of the balancer; 0: never searched
}

// seek returns the best layout of a planner's map, if one fits. The search takes longer than
// other decisions, so it is repeated only after horizon steps and when a changed model has
// settled.
func (b *balancer) seek(o *sought, p *search.Planner) (layout.Layout, bool) {
	if o.step == 0 || o.step+horizon <= b.Steps || b.Settles && o.step < b.Steps || o.of != p.Map {
		*o = sought{of: p.Map, step: b.Steps}
		if cuts, err := p.BestCuts(b.costs.Table); err == nil {
			o.Layout = p.Layout(b.costs.Table, cuts)
		}
	}
	return o.Layout, o.Cuts != nil && p.Fits(b.costs.Table, o.Layout)
}

// bestOfThisMap returns the best layout of the present map where the exact partition says
// little about the best step: it treats each chunk as a stage, and it knows nothing of the
// gradient sum over replicas.
func (b *balancer) bestOfThisMap() (layout.Layout, bool) {
	p := b.planner
	if p.Config.Balance.Kind != "partition" || p.By != balance.ByTime || p.Map.Chunks == 1 && p.Mesh.Replicas <= 1 {
		return layout.Layout{}, false
	}
	return b.seek(&b.searched, p)
}

// bestOfOtherMap returns the best layout of the other map, if the settings allow two maps.
func (b *balancer) bestOfOtherMap() (layout.Layout, bool) {
	if b.planner.Other == nil {
		return layout.Layout{}, false
	}
	return b.seek(&b.aside, b.planner.Other)
}
