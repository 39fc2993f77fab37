package balance

import (
	"fmt"
	"math"
	"sort"

	"dynmo/src/partition"
)

// slacks are the shares by which FewestMoves may miss the smallest bottleneck.
var slacks = [...]float64{0, 0.01, 0.02, 0.05}

// FewestMoves returns a partition near present. Among the partitions whose bottleneck is
// within a share ε of the smallest possible one it takes the one that moves the fewest bytes.
// ε is the one of 0, 1, 2 and 5 % that minimises
//
//	horizon · bottleneck + movedBytes / bandwidth
//
// in seconds. horizon counts the microbatches that will run before the next
// balancing, bandwidth is in bytes per second (0: infinite, moving is free).
// present may have another number of stages. Errors as Partition's.
func FewestMoves(p Problem, present partition.Partition, horizon, bandwidth float64) (Result, error) {
	c, err := newChain(p)
	if err != nil {
		return Result{}, err
	}
	if present.Layers() != c.layers {
		return Result{}, fmt.Errorf("present cuts: %d layers, want %d", present.Layers(), c.layers)
	}
	exact, err := c.minimise()
	if err != nil {
		return Result{}, err
	}
	optimum := c.bottleneck(exact)
	move := c.moveBytes()
	best, least := Result{}, math.Inf(1)
	for _, slack := range slacks {
		cuts := c.keepMost(optimum+slack*optimum, present, move)
		r := c.result(cuts)
		r.Optimal = r.Bottleneck == optimum
		r.MovedBytes = movedBytes(cuts, present, move)
		price := horizon * r.Bottleneck
		if bandwidth > 0 {
			price += float64(r.MovedBytes) / bandwidth
		}
		if price < least {
			best, least = r, price
		}
	}
	return best, nil
}

// moveBytes returns prefix sums of the bytes that travel with each layer.
func (c *chain) moveBytes() []int64 {
	list := c.MoveBytes
	if list == nil {
		list = c.StaticBytes
	}
	sum := make([]int64, c.layers+1)
	for l := range c.layers {
		sum[l+1] = sum[l] + entry(list, l, 0)
	}
	return sum
}

// kept returns a cut moved into the range that a stage has at present: the
// bytes of layers [b, e) that stay on stage s are sum[kept(e)] - sum[kept(b)].
func kept(present partition.Partition, stage, cut int) int {
	if stage >= present.Stages() {
		return 0 // a new stage keeps nothing
	}
	lo, hi := present.Range(stage)
	return min(max(cut, lo), hi)
}

// movedBytes returns the bytes that change owner from present to next; sum
// holds prefix sums of the layers' bytes.
func movedBytes(next, present partition.Partition, sum []int64) int64 {
	moved := sum[len(sum)-1]
	for s := range next.Stages() {
		b, e := next.Range(s)
		moved -= sum[kept(present, s, e)] - sum[kept(present, s, b)]
	}
	return moved
}

// keepMost returns, among the partitions that keep to a bound, one that leaves
// the most bytes where they are; sum holds prefix sums of the layers' bytes.
// With K_s(e) the most bytes kept by the stages up to s when s ends at e,
//
//	K_s(e) = sum[kept(e)] + max_b (K_{s-1}(b) - sum[kept(b)])
//
// over the b for which [b, e) keeps to bound and memory. Without JointBytes these b
// form a range that only moves right as e grows. So a queue of candidates in falling
// order finds all maxima in time linear in the cuts' windows, O(P·L) at worst. Some
// partition must keep to the bound.
func (c *chain) keepMost(bound float64, present partition.Partition, sum []int64) partition.Partition {
	const never = math.MinInt64
	least := 1 // layers of a stage
	if c.AllowEmpty {
		least = 0
	}
	lo, hi := c.windows(bound)
	before := []int64{0}              // K of the stage before, from its window's first cut on
	from := make([][]int32, c.Stages) // from[s][e-lo[s+1]]: where stage s begins if it ends at e
	var queue []int                   // candidates b, values falling
	for s := range c.Stages {
		width := hi[s+1] - lo[s+1] + 1
		most, begin := make([]int64, width), make([]int32, width)
		value := func(b int) int64 { return before[b-lo[s]] - sum[kept(present, s, b)] }
		queue = queue[:0]
		head, next := 0, lo[s]
		for i := range width {
			e := lo[s+1] + i
			for ; next <= min(e-least, hi[s]); next++ {
				if before[next-lo[s]] == never {
					continue
				}
				for len(queue) > head && value(queue[len(queue)-1]) < value(next) {
					queue = queue[:len(queue)-1]
				}
				queue = append(queue, next)
			}
			for head < len(queue) && (c.seconds(s, queue[head], e) > bound || !c.mayFit(s, queue[head], e)) {
				head++
			}
			first := head
			for first < len(queue) && !c.fits(s, queue[first], e) {
				first++ // which may fit with the next e again
			}
			most[i] = never
			if first < len(queue) {
				most[i] = value(queue[first]) + sum[kept(present, s, e)]
				begin[i] = int32(queue[first])
			}
		}
		before, from[s] = most, begin
	}
	cuts := make(partition.Partition, c.Stages+1)
	cuts[c.Stages] = c.layers
	for s := c.Stages - 1; s >= 0; s-- {
		cuts[s] = int(from[s][cuts[s+1]-lo[s+1]])
	}
	return cuts
}

// windows returns, for every cut, bounds on the layer at which it lies in any
// partition that keeps to a bound: where greedy stages from the right and from the
// left get to. Those from the right do without JointBytes.
func (c *chain) windows(bound float64) (lo, hi partition.Partition) {
	lo, hi = make(partition.Partition, c.Stages+1), make(partition.Partition, c.Stages+1)
	lo[c.Stages] = c.layers
	for s := range c.Stages {
		hi[s+1] = c.last(s, hi[s], bound)
	}
	for s := c.Stages - 1; s > 0; s-- {
		e := lo[s+1]
		lo[s] = sort.Search(e, func(b int) bool { return c.seconds(s, b, e) <= bound && c.mayFit(s, b, e) })
	}
	return lo, hi
}
