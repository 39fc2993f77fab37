package search

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
)

// FirstLayout returns the layout of the first step, when no costs are measured yet. The balancers
// "uniform", "param", "regex" and "layout" have their own cuts. For "partition" and "diffusion" it is
// uniform cuts if these fit the memory, else others that fit. dense is the chain's bytes and
// parameters before training (see Dense); its seconds are not used. If no cuts fit the memory, the
// error names the smallest limit that would do.
func (p *Planner) FirstLayout(dense cost.Table) (layout.Layout, error) {
	cuts, err := p.firstCuts(dense)
	if err != nil {
		return layout.Layout{}, p.limited(dense, err)
	}
	return p.complete(dense, p.layout(cuts, p.base)), nil
}

// firstCuts returns the cuts of FirstLayout. The error is a *balance.MemoryError where those
// do not fit the memory.
func (p *Planner) firstCuts(dense cost.Table) (partition.Partition, error) {
	problem := p.problem(dense, balance.ByParam)
	b := p.Config.Balance
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
		r.Cuts, err = p.parseCuts()
		if err == nil {
			r, err = problem.Evaluate(r.Cuts)
		}
	default:
		if r, err = balance.Uniform(problem); err != nil {
			r, err = balance.Partition(problem)
		}
		if err == nil && p.missingBytes(dense, r.Cuts) > 0 { // chunks, whose memory the problem does not know
			r.Cuts = p.climb(dense, r.Cuts, func(cost.Table, partition.Partition) float64 { return 0 })
			if p.missingBytes(dense, r.Cuts) > 0 {
				if fitting := p.fitting(dense); fitting != nil {
					r.Cuts = fitting
				}
			}
		}
	}
	if err == nil {
		err = p.memoryError(dense, r.Cuts)
	}
	return r.Cuts, err
}

// parseCuts reads the cuts in the setting balance.layout.
func (p *Planner) parseCuts() (partition.Partition, error) {
	m := p.Config.Model
	cuts, err := partition.ParseLayout(p.Config.Balance.Layout, m.Blocks, p.Config.PerBlock(), m.HeadShards)
	if err != nil {
		return nil, fmt.Errorf("balance.layout: %w", err)
	}
	if n := p.Map.Virtual(); cuts.Stages() != n {
		return nil, fmt.Errorf("balance.layout: %d stages, want %d", cuts.Stages(), n)
	}
	return cuts, nil
}

// NextCuts returns the cuts that the balancer "partition" chooses after the present cuts. With one
// chunk on each stage it begins with the cuts of the smallest bottleneck. Of several such cuts it
// takes those that move the fewest bytes. If the balancer goes by time, it then improves the cuts on
// the simulated step. It returns the present cuts unless the step gets faster. lasting is the number
// of steps for which the new cuts are expected to stay: moved bytes count for less if lasting is
// large. The error is a *balance.MemoryError if no cuts fit.
func (p *Planner) NextCuts(t cost.Table, present partition.Partition, lasting int) (partition.Partition, error) {
	var r balance.Result
	var err error
	switch {
	case p.Map.Chunks == 1:
		r, err = balance.FewestMoves(p.Problem(t), present, float64(lasting*p.Microbatches), p.Network.Bandwidth())
		if err == nil && p.By == balance.ByTime {
			r.Cuts, err = p.improveFurther(t, r.Cuts)
		}
	case p.By == balance.ByTime:
		r.Cuts, err = p.BestCuts(t)
	default:
		if r, err = balance.Partition(p.problem(t, p.By)); err == nil {
			err = p.memoryError(t, r.Cuts)
		}
	}
	if _, full := errors.AsType[*balance.MemoryError](err); full && p.Map.Chunks > 1 && p.missingBytes(t, present) == 0 {
		return present, nil // the search does not find all cuts that fit
	}
	if err != nil {
		return nil, err
	}
	return p.FasterCuts(t, present, r.Cuts), nil
}

// improveFurther improves cuts on the simulated step. Where replicas sum gradients it
// searches more widely and takes what that finds if the gain is large enough.
func (p *Planner) improveFurther(t cost.Table, cuts partition.Partition) (partition.Partition, error) {
	near := p.improve(t, cuts)
	if p.Mesh.Replicas <= 1 {
		return near.Cuts, nil
	}
	other, err := p.BestCuts(t)
	if err == nil && p.cutsSeconds(t, other) < near.Seconds*(1-leastImprovement) {
		return other, nil
	}
	return near.Cuts, err
}

// FasterCuts returns next if its predicted step is faster than at the present cuts, or if it exceeds
// the memory limit by fewer bytes. It also returns next if layers are not balanced by time. Otherwise
// it returns the present cuts.
func (p *Planner) FasterCuts(t cost.Table, present, next partition.Partition) partition.Partition {
	if p.By != balance.ByTime || p.missingBytes(t, next) < p.missingBytes(t, present) || p.cutsSeconds(t, next) < p.cutsSeconds(t, present) {
		return next
	}
	return present
}
