package search

import (
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
	n, layers := f.Virtual(), len(s.Costs.Layers)
	search := fitter{step: s, form: f, cuts: make(partition.Partition, n+1), left: make([]int64, f.Stages), rest: make([]int64, layers+1)}
	if search.cuts[n] = layers; s.twice != nil { // the least that they may need
		search.step = s.Step(s.recomputingAll(s.Costs), s.Present)
	}
	for stage := range search.left {
		search.left[stage] = s.limit
	}
	for v, peak := range f.peaks {
		search.left[f.Stage(v)] -= s.besideLayers(f.Map, v, peak).Total()
	}
	for _, bytes := range search.left {
		search.free += bytes
	}
	for l := layers - 1; l >= 0; l-- {
		search.rest[l] = search.rest[l+1] + search.step.Costs.Layers[l].Bytes.Memory(1, 1, 1).Total()
	}
	if !search.place(0) {
		return nil
	}
	return search.cuts
}

// fitter is a search of fitting.
type fitter struct {
	step  *Step
	form  *form
	cuts  partition.Partition // of the virtual stages so far
	left  []int64             // by stage: bytes below the limit
	free  int64               // their sum
	rest  []int64             // by layer: least bytes of the layer and those behind it
	tries int
}

// place ends virtual stage v and those behind it. It reports whether all fit.
func (f *fitter) place(v int) bool {
	n, layers, stage := f.form.Virtual(), len(f.rest)-1, f.form.Stage(v)
	peak, left, free := f.form.peaks[v], f.left[stage], f.free
	defer func() { f.left[stage], f.free = left, free }()
	for e := f.cuts[v] + 1; e <= layers-(n-1-v); e++ {
		bytes := f.step.Costs.Layers[e-1].Bytes.Memory(peak.InFlight, peak.Between, peak.Recomputed).Total()
		f.left[stage] -= bytes
		f.free -= bytes
		if f.tries++; f.left[stage] < 0 || f.tries > mostPlaces {
			return false
		}
		if v == n-1 && e < layers || f.free < f.rest[e] {
			continue
		}
		f.cuts[v+1] = e
		if v == n-1 && f.step.missingBytes(f.cuts) == 0 || v < n-1 && f.place(v+1) {
			return true
		}
	}
	return false
}
