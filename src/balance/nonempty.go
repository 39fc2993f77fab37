package balance

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// reach is probe for stages that must not be empty: it follows every cut that
// can be reached, not the furthest alone, because the greedy cut may leave
// later stages layers they cannot hold. Cut e after stage s is reached if
// [b, e) keeps to the bound and the memory of s for some reached b < e; the
// largest such b is enough to look at. O(P·L) at worst.
//
// On failure next is the smallest bound at which any further cut would be
// reached, infinite if memory alone stands in the way.
func (c *chain) reach(bound float64) (cuts partition.Partition, next float64) {
	next = math.Inf(1)
	reached := make([][]bool, c.Stages+1)
	reached[0] = []bool{true}
	for s := range c.Stages {
		from := reached[s]
		to := make([]bool, c.layers-(c.Stages-1-s)+1) // the stages behind need a layer each
		for b, e := -1, 1; e < len(to); e++ {
			if e-1 < len(from) && from[e-1] {
				b = e - 1
			}
			if b < 0 || !c.fits(s, b, e) {
				continue
			}
			if seconds := c.seconds(s, b, e); seconds <= bound {
				to[e] = true
			} else {
				next = min(next, seconds)
			}
		}
		reached[s+1] = to
	}
	if !reached[c.Stages][c.layers] {
		return nil, next
	}
	cuts = make(partition.Partition, c.Stages+1)
	cuts[c.Stages] = c.layers
	for s := c.Stages - 1; s >= 0; s-- {
		b := min(cuts[s+1], len(reached[s])) - 1
		for !reached[s][b] {
			b--
		}
		cuts[s] = b
	}
	return cuts, next
}

// memoryError says which layer fits nowhere, else which stage is full without
// any layer, else how many bytes every stage is short of.
func (c *chain) memoryError() *MemoryError {
	for l := range c.layers {
		stage, missing := -1, int64(math.MaxInt64)
		for s := range c.Stages {
			if c.mayFit(s, l, l+1) {
				missing = 0
				break
			}
			if m := c.summedBytes(s, l, l+1) - entry(c.Capacity, s, 0); m < missing {
				stage, missing = s, m
			}
		}
		if missing > 0 {
			return &MemoryError{Layer: l, Name: c.name(l), Stage: stage, Missing: missing}
		}
	}
	for s := range c.Stages {
		if !c.fits(s, 0, 0) {
			return &MemoryError{Layer: -1, Stage: s, Missing: c.bytes(s, 0, 0) - entry(c.Capacity, s, 0)}
		}
	}
	return &MemoryError{Layer: -1, Stage: -1, Missing: c.missingBytes()}
}

// missingBytes returns the least number of bytes that, added to every limited
// stage, lets the layers fit. The layers do not fit as it is.
func (c *chain) missingBytes() int64 {
	wider := *c
	try := wider.reach
	if c.AllowEmpty {
		try = wider.probe
	}
	lo, hi := int64(0), int64(0) // lo is too little, hi is enough for any cuts
	for s := range c.Stages {
		hi = max(hi, c.summedBytes(s, 0, c.layers))
	}
	joint := int64(0)
	for e := 1; e <= c.layers && c.JointBytes != nil; e++ {
		joint = max(joint, c.JointBytes(0, e))
	}
	hi += joint
	for hi-lo > 1 {
		wider.extra = lo + (hi-lo)/2
		if cuts, _ := try(math.Inf(1)); cuts == nil {
			lo = wider.extra
		} else {
			hi = wider.extra
		}
	}
	return hi
}

// LeastCapacity returns the smallest number of bytes with which the layers fit if every stage
// can hold that many. p.Capacity does not count. Errors are those of Check.
func (p Problem) LeastCapacity() (int64, error) {
	p.Capacity = slices.Repeat([]int64{1}, p.Stages)
	c, err := newChain(p)
	if err != nil {
		return 0, err
	}
	return 1 + c.missingBytes(), nil
}
