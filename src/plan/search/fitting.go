package search

import (
	"slices"

	"dynmo/src/partition"
)

// mostPlaces bounds how often fitting tries to end a virtual stage at a layer: a hundredth of a
// second. It tries all cuts of 24 layers over 8 virtual stages that memory does not rule out.
const mostPlaces = 1 << 18

// fitting returns cuts with which the base schedule fits the memory limit, nil if it finds none.
// It tries all cuts in order, and drops those whose first layers exceed the limit of a stage
// or leave too little for the others. It finds cuts whenever there are some, unless it has to
// try more than mostPlaces.
func (s *Step) fitting(f *form) partition.Partition {
	if s.twice != nil { // the least that they may need
		s = s.Step(s.effective(s.Costs, slices.Repeat([]bool{true}, len(s.Costs.Layers))), s.Present)
	}
	n, layers := f.Virtual(), len(s.Costs.Layers)
	left, free := make([]int64, f.Stages), int64(0) // by stage: bytes below the limit; their sum
	for stage := range left {
		left[stage] = s.limit
	}
	for v, peak := range f.peaks {
		left[f.Stage(v)] -= s.beside(f.Map, v, peak).Total()
	}
	for _, bytes := range left {
		free += bytes
	}
	rest := make([]int64, layers+1) // by layer: least bytes of the layer and those behind it
	for l := layers - 1; l >= 0; l-- {
		rest[l] = rest[l+1] + s.Costs.Layers[l].Bytes.Memory(1, 1, 1).Total()
	}
	cuts, tries := make(partition.Partition, n+1), 0
	cuts[n] = layers
	// place ends virtual stage v and those behind it, where free bytes are left. It reports whether all fit.
	var place func(v int, free int64) bool
	place = func(v int, free int64) bool {
		peak, stage := f.peaks[v], f.Stage(v)
		before := left[stage]
		defer func() { left[stage] = before }()
		for e := cuts[v] + 1; e <= layers-(n-1-v); e++ {
			bytes := s.Costs.Layers[e-1].Bytes.Memory(peak.InFlight, peak.Between, peak.Recomputed).Total()
			left[stage] -= bytes
			free -= bytes
			if tries++; left[stage] < 0 || tries > mostPlaces {
				return false
			}
			if v == n-1 && e < layers || free < rest[e] {
				continue
			}
			cuts[v+1] = e
			if v == n-1 && s.CutsFit(cuts) || v < n-1 && place(v+1, free) {
				return true
			}
		}
		return false
	}
	if !place(0, free) {
		return nil
	}
	return cuts
}
