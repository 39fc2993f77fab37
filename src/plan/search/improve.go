package search

import (
	"cmp"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

const (
	// reach is how many layers a cut is tried to move by at a time.
	reach = 2
	// leastImprovement is the share of a step that a move of cuts must save. With a smaller share
	// layers would move without end, because of noise in costs.
	leastImprovement = 1e-3
	// mostTries bounds the steps that improve simulates, and mostInstructions their instructions.
	// So a decision stays short on a thousand stages.
	mostTries, mostInstructions = 500, 1 << 20
)

// BestCuts returns the cuts with the shortest predicted step that a search finds. The error is a
// *balance.MemoryError if it finds no cuts that fit the memory.
//
// The search begins at several cuts. It always begins at the cuts with the smallest bottleneck of a
// virtual stage. With replicas it also begins at such cuts for each λ of Problem. With replicas or
// several chunks on a stage it also begins at the cuts of "uniform" and "param". In a V it also begins
// at the cuts with the smallest load of the most loaded stage, both chunks together.
//
// The starts with the shortest steps are improved: single cuts move by one or two layers as long as
// the step gets shorter. The best result is taken. The number of improved starts is 2; 3 if stages hold
// several chunks and the schedule is fixed; 4 with replicas.
func (p *Planner) BestCuts(t cost.Table) (partition.Partition, error) {
	problem := p.problem(t, balance.ByTime)
	var starts []partition.Partition
	for _, weighted := range p.weighSums(problem, t) {
		r, err := balance.Partition(weighted)
		if err != nil {
			return nil, err
		}
		starts = append(starts, r.Cuts)
	}
	if p.Map.Chunks > 1 || p.Mesh.Replicas > 1 {
		if r, err := balance.Uniform(problem); err == nil {
			starts = append(starts, r.Cuts)
		}
		if r, err := balance.Param(p.problem(t, balance.ByParam)); err == nil {
			starts = append(starts, r.Cuts)
		}
	}
	if p.Map.Vee && p.Map.Chunks == 2 && p.Map.Stages > 1 {
		slow := slices.Repeat([]float64{1}, p.Map.Stages)
		copy(slow, problem.Slow) // virtual stages begin with one of each stage
		starts = append(starts, folded(problem.Seconds, slow))
	}
	starts = slices.CompactFunc(starts, partition.Partition.Equal)
	var best found
	improved := 2
	if p.Map.Chunks > 1 && !p.Adapts() {
		improved = 3
	}
	if p.Mesh.Replicas > 1 {
		improved = 4
	}
	for i, cuts := range p.promising(t, starts, improved) {
		if end := p.improve(t, cuts); i == 0 || end.compare(best) < 0 {
			best = end
		}
	}
	if p.Map.Chunks > 1 && best.Missing > 0 {
		if cuts, err := p.firstCuts(t); err == nil {
			best = p.improve(t, cuts)
		}
	}
	return best.Cuts, p.memoryError(t, best.Cuts)
}

// promising returns the n starts with the shortest steps, the shortest first. It returns
// all starts as they are if there are at most n.
func (p *Planner) promising(t cost.Table, starts []partition.Partition, n int) []partition.Partition {
	if len(starts) <= n {
		return starts
	}
	list := make([]found, len(starts))
	for i, cuts := range starts {
		list[i] = found{cuts, p.missingBytes(t, cuts), p.Seconds(t, p.layout(cuts, p.bestFixed(t, cuts)))}
	}
	slices.SortStableFunc(list, found.compare)
	starts = starts[:n]
	for i := range starts {
		starts[i] = list[i].Cuts
	}
	return starts
}

// found is the start or the result of a search.
type found struct {
	Cuts    partition.Partition
	Missing int64   // bytes
	Seconds float64 // of a step
}

func (p *Planner) judge(t cost.Table, cuts partition.Partition) found {
	return found{cuts, p.missingBytes(t, cuts), p.cutsSeconds(t, cuts)}
}

func (s found) compare(other found) int {
	return cmp.Or(cmp.Compare(s.Missing, other.Missing), cmp.Compare(s.Seconds, other.Seconds))
}

// improve moves single cuts by one or two layers as long as that shortens the simulated step, and
// returns the result. The exact partition is best for the slowest stage. The loads of the other
// stages matter too, and only a simulation shows how. Cuts that exceed the memory are first moved
// until they fit. For kinds list and auto one search simulates a list schedule, and another the fixed
// schedule that is best at the start. Where microbatches differ, one more search simulates their
// mean. A result is taken if its step is shorter with the schedule and microbatches that Seconds uses.
func (p *Planner) improve(t cost.Table, cuts partition.Partition) found {
	searches := []func(cost.Table, partition.Partition) float64{p.Estimate}
	if p.Adapts() {
		fixed := p.bestFixed(t, cuts)
		searches = append(searches, func(t cost.Table, cuts partition.Partition) float64 {
			return p.Seconds(t, p.layout(cuts, fixed))
		})
	}
	if t.Scale != nil {
		searches = append(searches, func(t cost.Table, cuts partition.Partition) float64 {
			t.Scale = nil
			return p.Estimate(t, cuts)
		})
	}
	best := p.judge(t, cuts)
	for _, estimate := range searches {
		climbed := p.climb(t, cuts, estimate)
		if climbed.Equal(best.Cuts) {
			continue
		}
		if next := p.judge(t, climbed); next.compare(best) < 0 {
			best = next
		}
	}
	return best
}

// bestFixed returns the schedule with the shortest step at some cuts, among those that follow
// from numbers alone. For other kinds than auto it is the base schedule.
func (p *Planner) bestFixed(t cost.Table, cuts partition.Partition) schedule.Schedule {
	if p.Kind != schedule.KindAuto {
		return p.base
	}
	best, least := p.base, p.Seconds(t, p.layout(cuts, p.base))
	for _, s := range fixedSchedules(p.options(p.Step(t, cuts, best), p.caps(t, cuts))) {
		if s.Kind == p.base.Kind {
			continue // simulated above
		}
		if seconds := p.Seconds(t, p.layout(cuts, s)); seconds < least {
			best, least = s, seconds
		}
	}
	return best
}

// climb is one search of improve. estimate predicts the seconds of a step.
func (p *Planner) climb(t cost.Table, cuts partition.Partition, estimate func(cost.Table, partition.Partition) float64) partition.Partition {
	best := slices.Clone(cuts)
	over := p.missingBytes(t, best)
	seconds := estimate(t, best)
	left := min(mostTries, max(1, mostInstructions/(3*p.Map.Virtual()*p.Microbatches)))
	for moved := true; moved && left > 0; {
		moved = false
		for c := 1; c < best.Stages(); c++ {
			for _, by := range []int{-1, 1, -reach, reach} {
				next := shift(best, c, by)
				if next == nil || left == 0 {
					continue
				}
				lack := p.missingBytes(t, next)
				if lack > over {
					continue
				}
				if lack == over && p.lowerBound(t, next, nil) >= seconds*(1-leastImprovement) {
					continue // no schedule makes them worth it
				}
				left--
				took := estimate(t, next)
				if lack < over || took < seconds*(1-leastImprovement) {
					best, over, seconds, moved = next, lack, took, true
				}
			}
		}
	}
	return best
}

// Estimate predicts what Seconds says of some cuts, with less work. If Adapts it uses the list schedule
// of one rule, without gradient sums. Otherwise it is Seconds with the base schedule.
func (p *Planner) Estimate(t cost.Table, cuts partition.Partition) float64 {
	if !p.Adapts() {
		return p.Seconds(t, p.layout(cuts, p.base))
	}
	return schedule.NewLister(p.options(p.Step(t, cuts, p.base), p.caps(t, cuts))).Run(schedule.Rule{})
}

// shift returns the cuts with cut c moved by some layers, nil if that empties a stage.
func shift(cuts partition.Partition, c, by int) partition.Partition {
	to := cuts[c] + by
	if to <= cuts[c-1] || to >= cuts[c+1] {
		return nil
	}
	next := slices.Clone(cuts)
	next[c] = to
	return next
}
