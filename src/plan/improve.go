package plan

import (
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

const (
	// reach is how many layers a cut is tried to move by at a time.
	reach = 2
	// worth is the share of a step that a move of cuts must gain: less is noise, after
	// which layers would move without end.
	worth = 1e-3
	// tries bounds the steps that Improve simulates, so that a decision stays
	// short on a thousand stages: a millisecond each for 24 stages and 96
	// microbatches.
	tries = 500
)

// Cuts returns the cuts with the shortest predicted step that the search finds:
// the exact partition, then Improve. With several chunks on a stage, where no
// exact partition is known, the search begins at the exact partition over
// virtual stages and at uniform cuts, and the better end is taken.
func (p *Planner) Cuts(t cost.Table) (partition.Partition, error) {
	problem := p.problem(t, balance.ByTime)
	exact, err := balance.Partition(problem)
	if err != nil {
		return nil, err
	}
	cuts, seconds := p.Improve(t, exact.Cuts)
	if p.Map.Chunks > 1 {
		if start, err := balance.Uniform(problem); err == nil {
			other, took := p.Improve(t, start.Cuts)
			fits, otherFits := p.missing(t, cuts) == 0, p.missing(t, other) == 0
			if otherFits && (!fits || took < seconds) {
				cuts = other
			}
		}
	}
	return cuts, p.memoryError(t, cuts)
}

// Improve moves single cuts by one or two layers as long as that shortens the
// simulated step, and returns the cuts and their predicted seconds. The exact
// partition is the best for the slowest stage; what a schedule makes of the
// others' loads only a simulation tells. Where memory is exceeded it is mended
// first. For list and auto one search goes by a list schedule and one by the base,
// and what they found is taken if the whole choice of schedules agrees.
func (p *Planner) Improve(t cost.Table, cuts partition.Partition) (partition.Partition, float64) {
	searches := []func(cost.Table, partition.Partition) float64{p.estimate}
	if p.adapts() {
		searches = append(searches, func(t cost.Table, cuts partition.Partition) float64 {
			return p.seconds(t, cuts, p.base)
		})
	}
	best, seconds, over := cuts, p.Makespan(t, cuts), p.missing(t, cuts)
	for _, estimate := range searches {
		found := p.climb(t, cuts, estimate)
		if found.Equal(best) {
			continue
		}
		took, lack := p.Makespan(t, found), p.missing(t, found)
		if lack < over || lack == over && took < seconds {
			best, seconds, over = found, took, lack
		}
	}
	return best, seconds
}

// climb is one search of Improve, which goes by estimate.
func (p *Planner) climb(t cost.Table, cuts partition.Partition, estimate func(cost.Table, partition.Partition) float64) partition.Partition {
	best := slices.Clone(cuts)
	over := p.missing(t, best)
	seconds := estimate(t, best)
	left := tries
	for moved := true; moved && left > 0; {
		moved = false
		for c := 1; c < best.Stages(); c++ {
			for _, by := range []int{-1, 1, -reach, reach} {
				next := shift(best, c, by)
				if next == nil || left == 0 {
					continue
				}
				lack := p.missing(t, next)
				if lack > over {
					continue
				}
				if lack == over && p.bound(t, next, nil) >= seconds*(1-worth) {
					continue // no schedule makes them worth it
				}
				left--
				took := estimate(t, next)
				if lack < over || took < seconds*(1-worth) {
					best, over, seconds, moved = next, lack, took, true
				}
			}
		}
	}
	return best
}

// estimate predicts the seconds of a step as Makespan does, by a single schedule
// where Makespan compares several.
func (p *Planner) estimate(t cost.Table, cuts partition.Partition) float64 {
	if !p.adapts() {
		return p.seconds(t, cuts, p.base)
	}
	return schedule.NewLister(p.options(p.Step(t, cuts, p.base), p.caps(t, cuts))).Run(schedule.Rule{})
}

// shift returns cuts with one of them moved, nil if a stage were left empty.
func shift(cuts partition.Partition, c, by int) partition.Partition {
	to := cuts[c] + by
	if to <= cuts[c-1] || to >= cuts[c+1] {
		return nil
	}
	next := slices.Clone(cuts)
	next[c] = to
	return next
}
