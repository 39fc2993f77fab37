package balance

import (
	"math"
	"sort"

	"dynmo/src/partition"
)

// Partition returns a contiguous partition with the smallest possible bottleneck, max_s (slow_s·Σt
// + fixed_s), under every stage's memory. Of equally good partitions it takes the one with the
// longest early stages. If the problem asks for it (see AllowEmpty), each stage still gets a layer.
//
// Exact, without a tolerance: bisection over bottlenecks of existing partitions. A greedy probe
// tries each of them (Pinar & Aykanat, JPDC 2004; Nicol, JPDC 1994). A probe takes O(P log L). If
// no partition fits into memory the error is a *MemoryError. Other errors name the field of the
// problem that is wrong.
//
// Departs: the paper builds on DeepSpeed's balancer (section 3.3), whose search stops at an
// absolute tolerance.
func Partition(p Problem) (Result, error) {
	c, err := newChain(p)
	if err != nil {
		return Result{}, err
	}
	cuts, err := c.minimise()
	if err != nil {
		return Result{}, err
	}
	r := c.result(cuts)
	r.Optimal = true
	return r, nil
}

// minimise returns the cuts that Partition returns.
func (c *chain) minimise() (partition.Partition, error) {
	for s := range c.Stages {
		if !c.fits(s, 0, 0) {
			return nil, c.memoryError()
		}
	}
	start, _ := c.probe(math.Inf(1))
	if start == nil {
		return nil, c.memoryError()
	}
	cuts := c.bisect(c.probe, c.floor(), start, c.ideal())
	if c.AllowEmpty {
		return cuts, nil
	}
	bound := c.bottleneck(cuts)
	if spread := spread(cuts); spread != nil && c.feasible(spread, bound) {
		return spread, nil
	}
	start, _ = c.reach(math.Inf(1))
	if start == nil {
		return nil, c.memoryError()
	}
	return c.bisect(c.reach, bound, start, bound), nil
}

// bisect returns the best partition that probe can find. It calls probe with the bounds to try. No
// partition is better than lo. best is a partition that probe has found. guess is the first bound
// to try.
func (c *chain) bisect(probe func(float64) (partition.Partition, float64), lo float64, best partition.Partition, guess float64) partition.Partition {
	bisect(func(bound float64) (found bool, at float64) {
		cuts, next := probe(bound)
		if cuts == nil {
			return false, next
		}
		best = cuts
		return true, c.bottleneck(cuts)
	}, lo, c.bottleneck(best), guess)
	return best
}

// bisect finds the smallest bottleneck. Some partition has bottleneck hi, and none has less than
// lo. guess is the first bound to try. try reports whether it found a partition within a bound. at
// is that partition's bottleneck. After a failure at is the next bound with another answer. A
// success lowers hi, a failure raises lo, so the two meet at the bottleneck of a partition.
func bisect(try func(bound float64) (found bool, at float64), lo, hi, guess float64) {
	for bound := min(max(guess, lo), hi); lo < hi; bound = lo + (hi-lo)/2 {
		if bound == hi { // hi has been tried; lo and hi are neighbours, or the guess was too high
			bound = lo
		}
		if found, at := try(bound); found {
			hi = at
		} else {
			lo = at
		}
	}
}

// probe cuts the chain from the left. Each stage takes as many layers as the bound and its memory
// allow. If layers are left over, probe returns nil cuts. It then also returns the smallest bound
// at which a stage could take one layer more (infinite if only memory stands in the way). It finds
// a partition whenever there is one, because layers that fit on a stage also fit without the first
// ones.
func (c *chain) probe(bound float64) (cuts partition.Partition, next float64) {
	cuts = make(partition.Partition, c.Stages+1)
	next = math.Inf(1)
	for s, b := 0, 0; s < c.Stages; s++ {
		b = c.last(s, b, bound)
		cuts[s+1] = b
		for e := b + 1; e <= c.layers && c.mayFit(s, cuts[s], e); e++ {
			if c.fits(s, cuts[s], e) {
				next = min(next, c.seconds(s, cuts[s], e))
				break
			}
		}
	}
	if cuts[c.Stages] < c.layers {
		return nil, next
	}
	return cuts, next
}

// last returns the largest e for which layers [b, e) respect the stage's memory and the bound. It
// first doubles its stride, because stages are short compared with the chain.
func (c *chain) last(stage, b int, bound float64) int {
	allowed := func(e int) bool { return c.mayFit(stage, b, e) && c.seconds(stage, b, e) <= bound }
	lo, stride := b, 1
	for lo+stride <= c.layers && allowed(lo+stride) {
		lo += stride
		stride *= 2
	}
	width := min(stride-1, c.layers-lo)
	e := lo + sort.Search(width, func(i int) bool { return !allowed(lo + i + 1) })
	for e > b && !c.fits(stage, b, e) {
		e--
	}
	return e
}

// spread moves cuts back so that every stage has a layer. It returns nil if too few layers lie
// before a cut. It ignores time and memory.
func spread(cuts partition.Partition) partition.Partition {
	out := append(partition.Partition(nil), cuts...)
	for s := out.Stages() - 1; s >= 0; s-- {
		out[s] = min(out[s], out[s+1]-1)
	}
	if out[0] != 0 {
		return nil
	}
	return out
}
