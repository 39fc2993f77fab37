package search

import (
	"slices"
	"sync"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// recent is a cache of the newest schedules: one decision asks several times for the
// schedule of the same cuts.
type recent struct {
	mutex sync.Mutex
	costs cost.Table
	list  []layout.Layout // the newest last; only cuts and schedules
}

// mostRecent is how many schedules are kept: for the present cuts, and the ends of the
// searches for better ones.
const mostRecent = 6

// schedule returns the schedule for costs at some cuts, which find finds.
func (r *recent) schedule(t cost.Table, cuts partition.Partition, find func(cost.Table, partition.Partition) schedule.Schedule) schedule.Schedule {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.costs.Equal(t) {
		r.costs, r.list = t, nil
		r.costs.Layers, r.costs.Slow, r.costs.Fixed = slices.Clone(t.Layers), slices.Clone(t.Slow), slices.Clone(t.Fixed)
	}
	for _, s := range r.list {
		if s.Cuts.Equal(cuts) {
			return s.Schedule
		}
	}
	found := find(t, cuts)
	r.list = append(r.list[max(0, len(r.list)-mostRecent+1):], layout.Layout{Cuts: slices.Clone(cuts), Schedule: found})
	return found
}
