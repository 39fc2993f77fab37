package balance

import "dynmo/src/partition"

// chain is a checked problem with prefix sums. With them the cost of layers [b, e) on a stage takes
// O(1). Rounding is monotone: seconds(s, b, e) never falls with e and never rises with b. So the
// searches over chain are exact in this arithmetic.
type chain struct {
	Problem
	layers     int
	work       []float64 // work[l] = Σ Seconds[:l]
	static     []int64   // static[l] = Σ StaticBytes[:l]
	activation []int64   // activation[l] = Σ ActivationBytes[:l]
	held       []int64   // held[l] = Σ HeldBytes[:l]
	again      []int64   // again[l] = Σ AgainBytes[:l]
	extra      int64     // bytes added to every capacity; only missingBytes changes it

	loads map[[2]int][]float64 // cache of secondsOfTwice: by stage and first layer, then by number of layers
	least map[[2]int][]int64   // cache of leastBytes: by stage and first layer, then by number of layers
}

func newChain(p Problem) (*chain, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	c := &chain{Problem: p, layers: p.Layers()}
	c.work = make([]float64, c.layers+1)
	c.static = make([]int64, c.layers+1)
	c.activation = make([]int64, c.layers+1)
	c.held = make([]int64, c.layers+1)
	c.again = make([]int64, c.layers+1)
	for l, x := range p.Seconds {
		c.work[l+1] = c.work[l] + x
		c.static[l+1] = c.static[l] + entry(p.StaticBytes, l, 0)
		c.activation[l+1] = c.activation[l] + entry(p.ActivationBytes, l, 0)
		c.held[l+1] = c.held[l] + entry(p.HeldBytes, l, 0)
		c.again[l+1] = c.again[l] + entry(p.AgainBytes, l, 0)
	}
	c.loads, c.least = make(map[[2]int][]float64), make(map[[2]int][]int64)
	return c, nil
}

// seconds returns the time of layers [b, e) on a stage for one microbatch. The conversion to
// float64 keeps a compiler from fusing product and sum.
func (c *chain) seconds(stage, b, e int) float64 {
	if c.TwiceBytes != nil {
		return c.secondsOfTwice(stage, b, e)
	}
	return float64(entry(c.Slow, stage, 1)*(c.work[e]-c.work[b])) + entry(c.Fixed, stage, 0)
}

// bytes returns the memory of layers [b, e) on a stage.
func (c *chain) bytes(stage, b, e int) int64 {
	bytes := c.summedBytes(stage, b, e)
	if c.JointBytes != nil {
		bytes += c.JointBytes(b, e)
	}
	return bytes
}

// summedBytes is bytes without JointBytes. It never falls as e rises or b falls.
func (c *chain) summedBytes(stage, b, e int) int64 {
	if c.TwiceBytes != nil {
		return c.leastBytes(stage, b, e)
	}
	return c.plainBytes(stage, b, e)
}

// plainBytes is summedBytes of layers that compute nothing twice.
func (c *chain) plainBytes(stage, b, e int) int64 {
	return c.static[e] - c.static[b] + entry(c.FixedBytes, stage, 0) +
		int64(entry(c.InFlight, stage, 1))*(c.activation[e]-c.activation[b]) +
		int64(entry(c.Between, stage, 1))*(c.held[e]-c.held[b]) +
		int64(entry(c.Recomputed, stage, 1))*(c.again[e]-c.again[b])
}

// fits reports whether a stage has the memory for layers [b, e). If layers fit, they also fit
// without the first ones. With JointBytes they may not fit without the last ones.
func (c *chain) fits(stage, b, e int) bool {
	return c.mayFit(stage, b, e) && (c.JointBytes == nil || c.within(stage, c.bytes(stage, b, e)))
}

// mayFit is fits without JointBytes. If layers may fit, they may also fit without the last ones.
func (c *chain) mayFit(stage, b, e int) bool { return c.within(stage, c.summedBytes(stage, b, e)) }

// within reports whether a stage has memory for a number of bytes.
func (c *chain) within(stage int, bytes int64) bool {
	limit := entry(c.Capacity, stage, 0)
	return limit == 0 || bytes <= limit+c.extra
}

// bottleneck returns the largest stage time of a partition.
func (c *chain) bottleneck(cuts partition.Partition) float64 {
	worst := 0.0
	for s := range c.Stages {
		worst = max(worst, c.seconds(s, cuts[s], cuts[s+1]))
	}
	return worst
}

// feasible reports whether every stage of a partition takes at most bound seconds and has the
// memory for its layers.
func (c *chain) feasible(cuts partition.Partition, bound float64) bool {
	for s := range c.Stages {
		if c.seconds(s, cuts[s], cuts[s+1]) > bound || !c.fits(s, cuts[s], cuts[s+1]) {
			return false
		}
	}
	return true
}

// floor returns the least bottleneck that the fixed seconds of stages and the longest single layer
// allow.
func (c *chain) floor() float64 {
	longest := 0.0
	for l := range c.layers {
		longest = max(longest, c.work[l+1]-c.work[l])
	}
	return floor(c.kinds(), longest)
}

// ideal returns the bottleneck if the work could be divided at any point, also inside a layer.
func (c *chain) ideal() float64 { return ideal(c.kinds(), c.work[c.layers]) }

// lowerBound returns a bottleneck that no partition can beat: max(T/P, longest layer, longest fixed
// seconds). The speeds and fixed seconds of stages are taken into account. The bound is valid up to
// rounding of the last digits of T/P.
func (c *chain) lowerBound() float64 { return max(c.floor(), c.ideal()) }
