package policy

import (
	"math"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
)

// firstFit merges neighbouring stages whose memory fits on one rank (paper, algorithm 4). It does
// so once the model's load is surely below the settings' share of the dense model's load. Balancing
// follows after later steps.
func (b *balancer) firstFit() (layout.Layout, *plan.Packing, error) {
	present, settings := b.now.Present, b.problem.Config
	s := settings.Repack
	why := &plan.Packing{Kind: "first-fit", Exact: true, Stages: present.Stages() - 1, Kept: plan.KeptLoad}
	if !b.hasShrunk(s.Below) {
		return present, why, nil
	}
	merged := stagesToMerge(b.now.Bytes(present), settings.Balance.MemoryLimitBytes, s.Stages)
	for ; len(merged) > 0; merged = merged[:len(merged)-1] {
		stages, cuts := present.Stages()-len(merged), removeCuts(present, merged)
		try := func(microbatches int) (candidate, error) { return b.mergeStages(stages, cuts, microbatches), nil }
		found := b.mergeStages(stages, cuts, b.problem.Microbatches)
		if !found.fits {
			continue
		}
		limit := found.seconds / (1 - s.Tolerance)
		c, err := b.tryFewerMicrobatches(found, try, func(c candidate) bool { return c.seconds <= limit })
		if err != nil {
			return present, nil, err
		}
		next, why := b.packed(c, why)
		return next, why, nil
	}
	why.Kept = plan.KeptMemory
	return present, why, nil
}

// mergeStages returns the layout of some cuts on a number of stages and of microbatches, in a map
// like the present one.
func (b *balancer) mergeStages(stages int, cuts partition.Partition, microbatches int) candidate {
	s, err := b.now.Resize(stages, microbatches)
	if err != nil {
		return candidate{}
	}
	if !slices.ContainsFunc(s.Maps, func(m partition.Map) bool { return m.Chunks == b.now.Present.Map().Chunks }) {
		return candidate{}
	}
	if !s.CutsFit(cuts) {
		return candidate{allowed: true}
	}
	l := s.Layout(cuts)
	return candidate{l, s, s.Seconds(l), true, true}
}

// hasShrunk reports whether the model's load is surely below a share of the dense model's.
func (b *balancer) hasShrunk(share float64) bool {
	load := b.load(b.now.Costs.Regroup(b.problem.Microbatches, b.microbatches))
	dense := b.Reference
	error := math.Hypot(b.loadError(), dense.Error)
	return load*(1+certainty*error) < share*(1-plan.WorthMoving)*dense.Load
}

// loadError returns the relative standard error of the model's load.
func (b *balancer) loadError() float64 {
	c := b.now.costs
	if b.problem.By != balance.ByTime || c.Sure() {
		return 0
	}
	sum, squares := 0.0, 0.0
	common := make([]float64, len(c.Stage))
	for l, layer := range c.Layers {
		x := layer.Seconds()
		sum += x
		common[c.On[l]] += x
		squares += x * c.Layer[l] * x * c.Layer[l]
	}
	for s, x := range common {
		squares += x * c.Stage[s] * x * c.Stage[s]
	}
	return math.Sqrt(squares) / sum
}

// stagesToMerge returns the stages that algorithm 4 of the paper empties, ascending. Each of
// them gives all its layers to the next stage if that has room, until least stages are
// left. bytes is by stage. limit bounds each stage; 0 is no limit.
//
// Departs: a stage gives to its neighbour only, so that the chain stays contiguous, and gives
// once, since it is empty then.
func stagesToMerge(bytes []int64, limit int64, least int) (emptied []int) {
	held := slices.Clone(bytes)
	for src := range len(held) - 1 {
		dst := src + 1
		if len(held)-len(emptied) > least && (limit == 0 || held[src]+held[dst] <= limit) {
			held[dst] += held[src]
			emptied = append(emptied, src)
		}
	}
	return emptied
}

// removeCuts returns the cuts of a layout after stages were merged with their next stages,
// chunk by chunk.
func removeCuts(l layout.Layout, stages []int) partition.Partition {
	m := l.Map()
	gone := make(map[int]bool) // cuts
	for _, stage := range stages {
		for chunk := range m.Chunks {
			gone[max(m.Place(stage, chunk), m.Place(stage+1, chunk))] = true
		}
	}
	var cuts partition.Partition
	for i, c := range l.Cuts {
		if !gone[i] {
			cuts = append(cuts, c)
		}
	}
	return cuts
}
