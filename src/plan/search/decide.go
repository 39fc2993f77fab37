package search

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/layout"
	"dynmo/src/partition"
)

// FirstLayout returns the layout of the first step, when no costs are measured yet. The balancers
// "uniform", "param", "regex" and "layout" have their own cuts. For "partition" and "diffusion" it is
// uniform cuts if these fit the memory, else others that fit. Costs are the chain's bytes and
// parameters before training (see Dense); their seconds are not used. If no cuts fit the memory, the
// error names the smallest limit that would do.
func (s *Step) FirstLayout() (layout.Layout, error) {
	cuts, err := s.firstCuts(s.here)
	if err != nil {
		return layout.Layout{}, s.limited(err)
	}
	return s.complete(s.baseLayout(cuts)), nil
}

// CheckMemory returns the error of FirstLayout, nil if there are first cuts in any allowed map.
func (s *Step) CheckMemory() error {
	_, first := s.FirstLayout()
	for i := range s.forms {
		if _, err := s.firstCuts(&s.forms[i]); err == nil {
			return nil
		}
	}
	return first
}

// firstCuts returns the cuts of FirstLayout in a form. The error is a *balance.MemoryError where those
// do not fit the memory.
func (s *Step) firstCuts(f *form) (partition.Partition, error) {
	problem := s.cutProblem(f, balance.ByParam)
	b := s.Config.Balance
	var r balance.Result
	var err error
	switch b.Kind {
	case "uniform":
		r, err = balance.Uniform(problem)
	case "param":
		r, err = balance.Param(problem)
	case "regex":
		r, err = balance.Regex(problem, b.Regex)
	case "layout":
		r.Cuts, err = parseCuts(s.Config, f.Virtual())
		if err == nil {
			r, err = problem.Evaluate(r.Cuts)
		}
	default:
		if r, err = balance.Uniform(problem); err != nil {
			r, err = balance.Partition(problem)
		}
		if err == nil && !s.CutsFit(r.Cuts) { // chunks, whose memory the problem does not know
			r.Cuts = s.climb(r.Cuts, func(partition.Partition) float64 { return 0 })
			if !s.CutsFit(r.Cuts) {
				if fitting := s.fitting(f); fitting != nil {
					r.Cuts = fitting
				}
			}
		}
	}
	if err == nil {
		_, err = s.missing(r.Cuts)
	}
	return r.Cuts, err
}

// parseCuts reads the cuts in the setting balance.layout.
func parseCuts(c config.Config, stages int) (partition.Partition, error) {
	cuts, err := partition.ParseLayout(c.Balance.Layout, c.Model.Blocks, c.PerBlock(), c.Model.HeadShards)
	if err != nil {
		return nil, fmt.Errorf("balance.layout: %w", err)
	}
	if cuts.Stages() != stages {
		return nil, fmt.Errorf("balance.layout: %d stages, want %d", cuts.Stages(), stages)
	}
	return cuts, nil
}

// NextCuts returns the cuts that the balancer "partition" chooses in the present map. With one chunk on
// each stage it begins with the cuts of the smallest bottleneck. Of several such cuts it takes those
// that move the fewest bytes. If the balancer goes by time, it then improves the cuts on the simulated
// step. It returns the present cuts unless the step gets faster. lasting is the number of steps for
// which the new cuts are expected to stay: moved bytes count for less if lasting is large. The error is
// a *balance.MemoryError if no cuts fit.
func (s *Step) NextCuts(lasting int) (partition.Partition, error) {
	f, present := s.here, s.Present.Cuts
	var r balance.Result
	var err error
	switch {
	case f.Chunks == 1:
		r, err = balance.FewestMoves(s.CutProblem(), present, float64(lasting*s.Microbatches), s.Network.Bandwidth())
		if err == nil && s.By == balance.ByTime {
			near := s.improve(r.Cuts)
			r.Cuts = near.Cuts
			if s.Mesh.Replicas > 1 { // sums of gradients: search more widely, for a gain that is large enough
				var wide partition.Partition
				if wide, err = s.bestCuts(f); err == nil && s.Seconds(s.Layout(wide)) < near.Seconds*(1-leastImprovement) {
					r.Cuts = wide
				}
			}
		}
	case s.By == balance.ByTime:
		r.Cuts, err = s.bestCuts(f)
	default:
		if r, err = balance.Partition(s.CutProblem()); err == nil {
			_, err = s.missing(r.Cuts)
		}
	}
	if _, full := errors.AsType[*balance.MemoryError](err); full && f.Chunks > 1 && s.CutsFit(present) {
		return present, nil // the search does not find all cuts that fit
	}
	if err != nil {
		return nil, err
	}
	return s.FasterCuts(r.Cuts), nil
}

// FasterCuts returns next if its predicted step is faster than at the present cuts, or if it exceeds
// the memory limit by fewer bytes. It also returns next if layers are not balanced by time. Otherwise
// it returns the present cuts.
func (s *Step) FasterCuts(next partition.Partition) partition.Partition {
	present := s.Present.Cuts
	lack, _ := s.missing(next)
	before, _ := s.missing(present)
	if s.By != balance.ByTime || lack < before || s.Seconds(s.Layout(next)) < s.Seconds(s.Layout(present)) {
		return next
	}
	return present
}

// FasterLayout returns the second of two layouts if its predicted step is more than 0.1 % faster than
// that of the first, else the first. A smaller difference may be noise.
func (s *Step) FasterLayout(first, second layout.Layout) layout.Layout {
	if s.Seconds(second) < s.Seconds(first)*(1-leastImprovement) {
		return second
	}
	return first
}

// BestInMap returns the layout with the shortest predicted step that a search finds in an allowed map.
// The error is a *balance.MemoryError if it finds no cuts that fit the memory.
func (s *Step) BestInMap(m partition.Map) (layout.Layout, error) {
	cuts, err := s.bestCuts(s.form(m.Virtual()))
	if err != nil {
		return layout.Layout{}, err
	}
	return s.Layout(cuts), nil
}

// BestLayout returns the best layout of all allowed maps, first that of the present map. If no layout
// fits the memory, the error names the smallest limit that would do.
func (s *Step) BestLayout() (layout.Layout, error) {
	best, err := s.BestInMap(s.Map)
	for _, m := range s.Maps {
		if m == s.Map {
			continue
		}
		if other, otherErr := s.BestInMap(m); err != nil && otherErr == nil {
			return other, nil
		} else if otherErr == nil {
			best = s.FasterLayout(best, other)
		}
	}
	if err != nil {
		return layout.Layout{}, s.limited(err)
	}
	return best, nil
}

// BalancedLayout returns BestLayout if the settings balance time (balance.by). If they balance
// parameters it returns the layout whose most loaded stage has the fewest. The error says that no cuts
// fit the memory.
func (s *Step) BalancedLayout() (layout.Layout, error) {
	if s.By == balance.ByTime {
		return s.BestLayout()
	}
	r, err := balance.Partition(s.CutProblem())
	if err != nil {
		return layout.Layout{}, err
	}
	_, err = s.missing(r.Cuts)
	return s.Layout(r.Cuts), err
}
