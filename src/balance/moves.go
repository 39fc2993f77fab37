package balance

import (
	"fmt"
	"math"

	"dynmo/src/partition"
)

// slacks are the shares by which FewestMoves may miss the smallest bottleneck.
var slacks = [...]float64{0, 0.01, 0.02, 0.05}

// FewestMoves returns a partition near present: among those whose bottleneck
// is within a share ε of the smallest possible one, the one that moves the
// fewest bytes, for the ε of 0, 1, 2 and 5 % that minimises
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
		sum[l+1] = sum[l] + at(list, l, 0)
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
// over the b for which [b, e) keeps to bound and memory. These b form a window
// that only moves right as e grows, so a queue of candidates in falling order
// finds every maximum in O(P·L) altogether. Some partition must keep to the
// bound.
func (c *chain) keepMost(bound float64, present partition.Partition, sum []int64) partition.Partition {
	const never = math.MinInt64
	least := 1 // layers of a stage
	if c.AllowEmpty {
		least = 0
	}
	before := make([]int64, c.layers+1) // K of the stage before
	for e := range before {
		before[e] = never
	}
	before[0] = 0
	from := make([][]int32, c.Stages) // from[s][e]: where stage s begins if it ends at e
	for s := range c.Stages {
		now, begin := make([]int64, c.layers+1), make([]int32, c.layers+1)
		value := func(b int) int64 { return before[b] - sum[kept(present, s, b)] }
		queue := make([]int, 0, c.layers+1) // candidates b, values falling
		head := 0
		for e := range c.layers + 1 {
			if b := e - least; b >= 0 && before[b] != never {
				for len(queue) > head && value(queue[len(queue)-1]) < value(b) {
					queue = queue[:len(queue)-1]
				}
				queue = append(queue, b)
			}
			for head < len(queue) && (c.seconds(s, queue[head], e) > bound || !c.fits(s, queue[head], e)) {
				head++
			}
			now[e] = never
			if head < len(queue) {
				now[e] = value(queue[head]) + sum[kept(present, s, e)]
				begin[e] = int32(queue[head])
			}
		}
		before, from[s] = now, begin
	}
	cuts := make(partition.Partition, c.Stages+1)
	cuts[c.Stages] = c.layers
	for s := c.Stages - 1; s >= 0; s-- {
		cuts[s] = int(from[s][cuts[s+1]])
	}
	return cuts
}
