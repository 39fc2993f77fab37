package plan

import (
	"errors"
	"fmt"
	"strconv"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
)

// First returns the layout before the first step: the static balancer's cuts, or
// the uniform ones, where memory allows, for balancers that measure first. dense
// is the chain before training; its seconds are not looked at.
func (p *Planner) First(dense cost.Table) (layout.Layout, error) {
	cuts, err := p.firstCuts(dense)
	return p.layout(cuts, p.base), err
}

func (p *Planner) firstCuts(dense cost.Table) (partition.Partition, error) {
	problem := p.Problem(dense, balance.ByParam)
	b := p.config.Balance
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
		r.Cuts, err = p.notation()
		if err == nil {
			r, err = problem.Evaluate(r.Cuts)
		}
	default:
		if r, err = balance.Uniform(problem); err != nil {
			r, err = balance.Partition(problem)
		}
		if err == nil && p.missing(dense, r.Cuts) > 0 { // chunks, whose memory the problem does not know
			r.Cuts = p.climb(dense, r.Cuts, func(cost.Table, partition.Partition) float64 { return 0 })
		}
	}
	if err == nil {
		err = p.memoryError(dense, r.Cuts)
	}
	if _, ok := errors.AsType[*balance.MemoryError](err); ok {
		err = fmt.Errorf("balance.memory_limit_bytes = %d: %w", p.limit, err)
	}
	if err != nil {
		return nil, fmt.Errorf("balance: %w", err)
	}
	return r.Cuts, nil
}

// notation reads the cuts of balance.layout.
func (p *Planner) notation() (partition.Partition, error) {
	m := p.config.Model
	cuts, err := partition.ParseLayout(p.config.Balance.Layout, m.Blocks, m.PerBlock(), m.HeadShards)
	if err != nil {
		return nil, fmt.Errorf("balance.layout: %w", err)
	}
	if n := p.Map.Virtual(); cuts.Stages() != n {
		return nil, fmt.Errorf("balance.layout: %d stages, want %d", cuts.Stages(), n)
	}
	return cuts, nil
}

// Notation returns cuts in Megatron-LM's notation; an error says what it cannot
// express.
func Notation(m config.Model, cuts partition.Partition) (string, error) {
	return partition.FormatLayout(cuts, m.Blocks, m.PerBlock(), m.HeadShards)
}

// horizon is how many steps new cuts are expected to last where the settings
// do not say.
const horizon = 100

// next returns the cuts that the balancer "partition" takes after now: exact,
// near the present ones, and by time improved on the simulated step. By time,
// cuts that predict no faster step are not taken. The error is a
// *balance.MemoryError if no cuts fit.
func (p *Planner) next(t cost.Table, now partition.Partition) (partition.Partition, error) {
	var next partition.Partition
	var err error
	switch {
	case p.Map.Chunks > 1:
		next, err = p.chunked(t)
		if _, full := errors.AsType[*balance.MemoryError](err); full && p.missing(t, now) == 0 {
			return now, nil // the search is none that finds all there is
		}
	default:
		steps, e := strconv.Atoi(p.config.Balance.Every)
		if e != nil {
			steps = horizon // "auto"
		}
		var r balance.Result
		r, err = balance.FewestMoves(p.Problem(t, p.by), now, float64(steps*p.Microbatches), p.Network.Bandwidth())
		next = r.Cuts
		if err == nil && p.by == balance.ByTime {
			next, _ = p.Improve(t, next)
		}
	}
	if err != nil {
		return nil, err
	}
	return p.faster(t, now, next), nil
}

// chunked returns cuts for several chunks on a stage.
func (p *Planner) chunked(t cost.Table) (partition.Partition, error) {
	if p.by == balance.ByTime {
		return p.Cuts(t)
	}
	r, err := balance.Partition(p.Problem(t, p.by))
	if err != nil {
		return nil, err
	}
	return r.Cuts, p.memoryError(t, r.Cuts)
}

// faster returns next if it predicts a faster step than now, if layers are not
// balanced by time, or if memory has no room for now and more for next; else now.
func (p *Planner) faster(t cost.Table, now, next partition.Partition) partition.Partition {
	if p.by != balance.ByTime || p.missing(t, next) < p.missing(t, now) || p.Makespan(t, next) < p.Makespan(t, now) {
		return next
	}
	return now
}
