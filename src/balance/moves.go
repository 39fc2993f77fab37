package balance

import (
	"fmt"
	"math"
	"sort"

	"dynmo/src/partition"
)

// slacks are the values of ε that FewestMoves tries: the share by which a bottleneck may exceed the
// smallest one.
var slacks = [...]float64{0, 0.01, 0.02, 0.05}

// FewestMoves returns a partition near present. For a share ε it considers the partitions whose
// bottleneck exceeds the smallest possible one by at most ε. Of them it takes the one that moves
// the fewest bytes. It chooses the ε of 0, 1, 2 and 5 % that minimises
//
//	horizon · bottleneck + movedBytes / bandwidth
//
// in seconds. horizon is the number of microbatches until the next balancing. bandwidth is in bytes
// per second (0: infinite, so that moves cost nothing). present may have another number of stages.
// Errors are those of Partition.
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

// moveBytes returns prefix sums of the bytes that a move of each layer sends.
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

// kept returns a cut clamped to the range of a stage in present. Of the layers [b, e), those that
// stay on stage s have sum[kept(e)] - sum[kept(b)] bytes.
func kept(present partition.Partition, stage, cut int) int {
	if stage >= present.Stages() {
		return 0 // a new stage keeps nothing
	}
	lo, hi := present.Range(stage)
	return min(max(cut, lo), hi)
}

// movedBytes returns the bytes of layers whose stage changes from present to next. sum has prefix
// sums of the layers' bytes.
func movedBytes(next, present partition.Partition, sum []int64) int64 {
	moved := sum[len(sum)-1]
	for s := range next.Stages() {
		b, e := next.Range(s)
		moved -= sum[kept(present, s, e)] - sum[kept(present, s, b)]
	}
	return moved
}

// keepMost returns, of the partitions within bound, one that moves the fewest bytes. sum has prefix
// sums of the layers' bytes. K_s(e) is the largest number of bytes that can stay on the stages up
// to s if s ends at e:
//
//	K_s(e) = sum[kept(e)] + max_b (K_{s-1}(b) - sum[kept(b)])
//
// over the b for which [b, e) respects bound and memory. Without JointBytes these b form a range
// that only moves right as e grows. A queue of candidates in falling order therefore finds all
// maxima in time linear in the windows of the cuts. That is O(P·L) at worst. Some partition must
// respect the bound.
func (c *chain) keepMost(bound float64, present partition.Partition, sum []int64) partition.Partition {
	const never = math.MinInt64
	least := 1 // smallest number of layers of a stage
	if c.AllowEmpty {
		least = 0
	}
	lo, hi := c.windows(bound)
	before := []int64{0}              // K of the previous stage, from the first cut of its window on
	from := make([][]int32, c.Stages) // from[s][e-lo[s+1]]: where stage s begins if it ends at e
	var queue []int                   // candidates b, with falling values
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
				first++ // a dropped b may fit again with the next e
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

// windows returns bounds for every cut: no partition within bound has the cut below lo or above hi.
// hi are the cuts of greedy stages from the left, lo those of greedy stages from the right. The
// stages from the right ignore JointBytes.
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
