package search

import (
	"cmp"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/layout"
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

// bestCuts returns the cuts with the shortest predicted step that a search finds in a form. The error
// is a *balance.MemoryError if it finds no cuts that fit the memory.
//
// The search begins at several cuts. It always begins at the cuts with the smallest bottleneck of a
// virtual stage. With replicas it also begins at such cuts for each λ of CutProblem. With replicas or
// several chunks on a stage it also begins at the cuts of "uniform" and "param". In a V it also begins
// at the cuts with the smallest load of the most loaded stage, both chunks together.
//
// The starts with the shortest steps are improved: single cuts move by one or two layers as long as
// the step gets shorter. The best result is taken. The number of improved starts is 2; 3 if stages hold
// several chunks and the schedule is fixed; 4 with replicas.
func (s *Step) bestCuts(f *form) (partition.Partition, error) {
	problem := s.cutProblem(f, balance.ByTime)
	var starts []partition.Partition
	for _, weighted := range s.weighSums(problem) {
		r, err := balance.Partition(weighted)
		if err != nil {
			return nil, err
		}
		starts = append(starts, r.Cuts)
	}
	if f.Chunks > 1 || s.Mesh.Replicas > 1 {
		if r, err := balance.Uniform(problem); err == nil {
			starts = append(starts, r.Cuts)
		}
		if r, err := balance.Param(s.cutProblem(f, balance.ByParam)); err == nil {
			starts = append(starts, r.Cuts)
		}
	}
	if f.Vee && f.Chunks == 2 && f.Stages > 1 {
		slow := slices.Repeat([]float64{1}, f.Stages)
		copy(slow, problem.Slow) // virtual stages begin with one of each stage
		starts = append(starts, folded(problem.Seconds, slow))
	}
	starts = slices.CompactFunc(starts, partition.Partition.Equal)
	improved := 2
	if f.Chunks > 1 && !s.Adapts() {
		improved = 3
	}
	if s.Mesh.Replicas > 1 {
		improved = 4
	}
	var best found
	for i, cuts := range s.promising(starts, improved) {
		if end := s.improve(cuts); i == 0 || end.compare(best) < 0 {
			best = end
		}
	}
	if f.Chunks > 1 && best.Missing > 0 {
		if cuts, err := s.firstCuts(f); err == nil {
			best = s.improve(cuts)
		}
	}
	_, err := s.missing(best.Cuts)
	return best.Cuts, err
}

// promising returns the n starts with the shortest steps, the shortest first. It returns
// all starts as they are if there are at most n.
func (s *Step) promising(starts []partition.Partition, n int) []partition.Partition {
	if len(starts) <= n {
		return starts
	}
	list := make([]found, len(starts))
	for i, cuts := range starts {
		list[i] = s.judge(s.bestFixed(cuts))
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

func (s *Step) judge(l layout.Layout) found {
	over, _ := s.missing(l.Cuts)
	return found{l.Cuts, over, s.Seconds(l)}
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
func (s *Step) improve(cuts partition.Partition) found {
	searches := []func(partition.Partition) float64{s.Estimate}
	if s.Adapts() {
		fixed := s.bestFixed(cuts).Schedule
		searches = append(searches, func(cuts partition.Partition) float64 { return s.Seconds(s.layout(cuts, fixed)) })
	}
	if s.Costs.Scale != nil {
		mean := s.Costs
		mean.Scale = nil
		searches = append(searches, s.Step(mean, s.Present).Estimate)
	}
	best := s.judge(s.Layout(cuts))
	for _, estimate := range searches {
		climbed := s.climb(cuts, estimate)
		if climbed.Equal(best.Cuts) {
			continue
		}
		if next := s.judge(s.Layout(climbed)); next.compare(best) < 0 {
			best = next
		}
	}
	return best
}

// bestFixed returns the layout with the shortest step at some cuts, among schedules that follow
// from numbers alone. For other kinds than auto it has the base schedule.
func (s *Step) bestFixed(cuts partition.Partition) layout.Layout {
	base := s.baseLayout(cuts)
	if s.Kind != schedule.KindAuto {
		return base
	}
	best, least := base, s.Seconds(base)
	for _, order := range fixedSchedules(s.listOptions(base)) {
		if order.Kind == base.Schedule.Kind {
			continue // simulated above
		}
		l := s.layout(cuts, order)
		if seconds := s.Seconds(l); seconds < least {
			best, least = l, seconds
		}
	}
	return best
}

// climb is one search of improve. estimate predicts the seconds of a step.
func (s *Step) climb(cuts partition.Partition, estimate func(partition.Partition) float64) partition.Partition {
	best := slices.Clone(cuts)
	over, _ := s.missing(best)
	seconds := estimate(best)
	left := min(mostTries, max(1, mostInstructions/(3*cuts.Stages()*s.Microbatches)))
	for moved := true; moved && left > 0; {
		moved = false
		for c := 1; c < best.Stages(); c++ {
			for _, by := range []int{-1, 1, -reach, reach} {
				next := shift(best, c, by)
				if next == nil || left == 0 {
					continue
				}
				lack, _ := s.missing(next)
				if lack > over {
					continue
				}
				if lack == over && s.lowerBound(next) >= seconds*(1-leastImprovement) {
					continue // no schedule makes them worth it
				}
				left--
				took := estimate(next)
				if lack < over || took < seconds*(1-leastImprovement) {
					best, over, seconds, moved = next, lack, took, true
				}
			}
		}
	}
	return best
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
