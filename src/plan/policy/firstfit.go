package policy

import (
	"math"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
)

// firstFit merges neighbouring stages whose memory fits on one rank (paper, algorithm 4). It does
// so once the model's load is surely below the settings' share of the dense model's load. Balancing
// follows after later steps.
func (b *balancer) firstFit(present layout.Layout) (layout.Layout, *plan.Packing, error) {
	s, t := b.planner.Config.Repack, b.costs.Table
	if !b.hasShrunk(s.Below) {
		return present, &plan.Packing{Kind: "first-fit", Exact: true, Stages: present.Stages() - 1, Kept: plan.KeptLoad}, nil
	}
	merged := stagesToMerge(b.planner.Bytes(t, present.Cuts, present.Schedule.Peaks()), b.planner.Config.Balance.MemoryLimitBytes, s.Stages)
	for ; len(merged) > 0; merged = merged[:len(merged)-1] {
		stages, cuts := present.Stages()-len(merged), removeCuts(present, merged)
		found := b.mergeStages(present, stages, cuts, b.planner.Microbatches)
		if !found.fits {
			continue
		}
		try := func(microbatches int) (candidate, error) {
			return b.mergeStages(present, stages, cuts, microbatches), nil
		}
		limit := found.seconds / (1 - s.Tolerance)
		c, err := b.tryFewerMicrobatches(found, try, func(c candidate) bool { return c.seconds <= limit })
		if err != nil {
			return present, nil, err
		}
		exact := c.Schedule.Microbatches == present.Schedule.Microbatches
		why := &plan.Packing{Kind: "first-fit", Exact: exact, Stages: stages, Throughput: b.Reference.Seconds / c.seconds}
		return b.placeOnFewestNodes(present, c.Layout), why, nil
	}
	return present, &plan.Packing{Kind: "first-fit", Exact: true, Stages: present.Stages() - 1, Kept: plan.KeptMemory}, nil
}

// mergeStages returns the layout of some cuts on a number of stages and of microbatches, in a map
// like the present one.
func (b *balancer) mergeStages(present layout.Layout, stages int, cuts partition.Partition, microbatches int) candidate {
	p, err := b.planner.Resize(stages, microbatches)
	if err != nil {
		return candidate{}
	}
	if p = withChunks(p, present.Map().Chunks); p == nil {
		return candidate{}
	}
	t := b.regroupCosts(p, b.costs.Table)
	if !p.CutsFit(t, cuts) {
		return candidate{allowed: true}
	}
	l := p.Layout(t, cuts)
	return candidate{l, p, p.Seconds(t, l), true, true}
}

// withChunks returns the planner of the same settings for a number of chunks on a stage, nil if
// the settings do not allow it.
func withChunks(p *search.Planner, chunks int) *search.Planner {
	if p.Map.Chunks != chunks {
		p = p.Other
	}
	if p == nil || p.Map.Chunks != chunks {
		return nil
	}
	return p
}

// hasShrunk reports whether the model's load is surely below a share of the dense model's.
func (b *balancer) hasShrunk(share float64) bool {
	load := b.load(b.costs.Table.Regroup(b.planner.Microbatches, b.microbatches))
	dense := b.Reference
	error := math.Hypot(b.loadError(), dense.Error)
	return load*(1+certainty*error) < share*(1-plan.WorthMoving)*dense.Load
}

// loadError returns the relative standard error of the model's load.
func (b *balancer) loadError() float64 {
	if b.planner.By != balance.ByTime || b.costs.Sure() {
		return 0
	}
	sum, squares := 0.0, 0.0
	common := make([]float64, len(b.costs.Stage))
	for l, layer := range b.costs.Layers {
		x := layer.Seconds()
		sum += x
		common[b.costs.On[l]] += x
		squares += x * b.costs.Layer[l] * x * b.costs.Layer[l]
	}
	for s, x := range common {
		squares += x * b.costs.Stage[s] * x * b.costs.Stage[s]
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
