package search

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// mostPlaces bounds how often fitting tries to end a virtual stage at a layer: a hundredth of a
// second. It tries all cuts of 24 layers over 8 virtual stages that memory does not rule out.
const mostPlaces = 1 << 18

// fitting returns cuts with which the base schedule fits the memory limit, nil if it finds none.
// It tries all cuts in order, and drops those whose first layers exceed the limit of a stage
// or leave too little for the others. It finds cuts whenever there are some, unless it has to
// try more than mostPlaces.
func (p *Planner) fitting(t cost.Table) partition.Partition {
	n, layers := p.Map.Virtual(), len(t.Layers)
	f := fitter{p: p, t: t, cuts: make(partition.Partition, n+1), left: make([]int64, p.Map.Stages), rest: make([]int64, layers+1)}
	if f.cuts[n] = layers; p.plans() { // the least that they may need
		f.t = p.effective(t, slices.Repeat([]bool{true}, layers))
	}
	for stage := range f.left {
		f.left[stage] = p.limit
	}
	for v, peak := range p.peaks {
		f.left[p.Map.Stage(v)] -= p.besideLayers(v, peak).Total()
	}
	for _, bytes := range f.left {
		f.free += bytes
	}
	for l := layers - 1; l >= 0; l-- {
		f.rest[l] = f.rest[l+1] + f.t.Layers[l].Bytes.Memory(1, 1, 1).Total()
	}
	if !f.place(0) {
		return nil
	}
	return f.cuts
}

// fitter is a search of fitting.
type fitter struct {
	p     *Planner
	t     cost.Table
	cuts  partition.Partition // of the virtual stages so far
	left  []int64             // by stage: bytes below the limit
	free  int64               // their sum
	rest  []int64             // by layer: least bytes of the layer and those behind it
	tries int
}

// place ends virtual stage v and those behind it. It reports whether all fit.
func (f *fitter) place(v int) bool {
	n, layers, stage := f.p.Map.Virtual(), len(f.t.Layers), f.p.Map.Stage(v)
	peak, left, free := f.p.peaks[v], f.left[stage], f.free
	defer func() { f.left[stage], f.free = left, free }()
	for e := f.cuts[v] + 1; e <= layers-(n-1-v); e++ {
		bytes := f.t.Layers[e-1].Bytes.Memory(peak.InFlight, peak.Between, peak.Recomputed).Total()
		f.left[stage] -= bytes
		f.free -= bytes
		if f.tries++; f.left[stage] < 0 || f.tries > mostPlaces {
			return false
		}
		if v == n-1 && e < layers || f.free < f.rest[e] {
			continue
		}
		f.cuts[v+1] = e
		if v == n-1 && f.p.missingBytes(f.t, f.cuts) == 0 || v < n-1 && f.place(v+1) {
			return true
		}
	}
	return false
}
