package balance

import "dynmo/src/partition"

// chain is a checked problem with prefix sums, so that the cost of any layers
// on any stage takes O(1). Rounding is monotone: seconds(s, b, e) never falls with e
// and never rises with b. So the searches over chain are exact in this arithmetic.
type chain struct {
	Problem
	layers     int
	work       []float64 // work[l] = Σ Seconds[:l]
	static     []int64   // static[l] = Σ StaticBytes[:l]
	activation []int64   // activation[l] = Σ ActivationBytes[:l]
	held       []int64   // held[l] = Σ HeldBytes[:l]
	again      []int64   // again[l] = Σ AgainBytes[:l]
	extra      int64     // bytes added to every capacity; only missingBytes changes it

	loads map[[2]int][]float64 // by stage and first layer: seconds by how many layers, where some compute twice
	least map[[2]int][]int64   // the same of the least bytes
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

// seconds returns the time of layers [b, e) on a stage for one microbatch. The
// conversion keeps a compiler from fusing product and sum.
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

// fits reports whether a stage has the memory for layers [b, e). What fits does without its
// first layers too. Where there are JointBytes it may not fit without its last ones.
func (c *chain) fits(stage, b, e int) bool {
	return c.mayFit(stage, b, e) && (c.JointBytes == nil || c.within(stage, c.bytes(stage, b, e)))
}

// mayFit is fits without JointBytes: what fits does without its last layers too.
func (c *chain) mayFit(stage, b, e int) bool { return c.within(stage, c.summedBytes(stage, b, e)) }

// within reports whether bytes fit into the memory of a stage.
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

// feasible reports whether every stage of a partition keeps to a bound and to
// its memory.
func (c *chain) feasible(cuts partition.Partition, bound float64) bool {
	for s := range c.Stages {
		if c.seconds(s, cuts[s], cuts[s+1]) > bound || !c.fits(s, cuts[s], cuts[s+1]) {
			return false
		}
	}
	return true
}

// floor returns the least bottleneck that fixed seconds and single layers
// allow.
func (c *chain) floor() float64 {
	longest := 0.0
	for l := range c.layers {
		longest = max(longest, c.work[l+1]-c.work[l])
	}
	return floor(c.kinds(), longest)
}

// ideal returns the bottleneck of layers that could be divided at will.
func (c *chain) ideal() float64 { return ideal(c.kinds(), c.work[c.layers]) }

// lowerBound returns a bottleneck that no partition can beat, whatever its
// cuts: max(T/P, longest layer, longest fixed seconds), with the stages'
// speeds and fixed seconds taken into account. It holds up to rounding of the
// last digits of T/P.
func (c *chain) lowerBound() float64 { return max(c.floor(), c.ideal()) }
