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

// seek returns the best layout of a map for the costs of s, if one fits. The search takes longer than
// other decisions, so it is repeated only after horizon steps and when a changed model has
// settled.
func (b *balancer) seek(o *sought, s *search.Step, m partition.Map) (layout.Layout, bool) {
	if o.step == 0 || o.step+horizon <= b.Steps || b.Settles && o.step < b.Steps || o.of != m {
		*o = sought{of: m, step: b.Steps}
		if l, err := s.BestInMap(m); err == nil {
			o.Layout = l
		}
	}
	return o.Layout, o.Cuts != nil && s.Fits(o.Layout)
}

// bestOfThisMap returns the best layout of the present map where the exact partition says
// little about the best step: it treats each chunk as a stage, and it knows nothing of the
// gradient sum over replicas.
func (b *balancer) bestOfThisMap() (layout.Layout, bool) {
	s, m := b.now.Step, b.now.Map
	if s.Config.Balance.Kind != "partition" || s.By != balance.ByTime || m.Chunks == 1 && s.Mesh.Replicas <= 1 {
		return layout.Layout{}, false
	}
	return b.seek(&b.searched, s, m)
}

// bestOfOtherMap returns the best layout of the other map for the costs of s, if the settings allow two
// maps.
func (b *balancer) bestOfOtherMap(s *search.Step) (layout.Layout, bool) {
	for _, m := range s.Maps {
		if m != s.Map {
			return b.seek(&b.aside, s, m)
		}
	}
	return layout.Layout{}, false
}
