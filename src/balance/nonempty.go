package balance

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// reach is probe for stages that must not be empty. probe's greedy cut may leave later stages with
// layers that do not fit. So reach follows every cut that can be reached, not only the furthest.
// Cut e after stage s is reached if [b, e) respects the bound and the memory of s for some reached
// b < e. Only the largest such b needs a check. O(P·L) at worst.
//
// On failure, next is the smallest bound at which one more cut would be reached. It is infinite if
// only memory prevents that.
func (c *chain) reach(bound float64) (cuts partition.Partition, next float64) {
	next = math.Inf(1)
	reached := make([][]bool, c.Stages+1)
	reached[0] = []bool{true}
	for s := range c.Stages {
		from := reached[s]
		to := make([]bool, c.layers-(c.Stages-1-s)+1) // each later stage needs a layer
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

// memoryError returns why the layers do not fit. It names a layer that fits on no stage, else a
// stage that is full without any layer. Else it gives the bytes that every stage lacks.
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

// missingBytes returns the least number of bytes that every stage with a limit must gain so that
// the layers fit. It is called only if the layers do not fit.
func (c *chain) missingBytes() int64 {
	wider := *c
	try := wider.reach
	if c.AllowEmpty {
		try = wider.probe
	}
	lo, hi := int64(0), int64(0) // lo is too little; hi is enough for any cuts
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

// LeastCapacity returns the smallest capacity in bytes, the same for every stage, with which the
// layers fit. It ignores p.Capacity. Errors are those of Check.
func (p Problem) LeastCapacity() (int64, error) {
	p.Capacity = slices.Repeat([]int64{1}, p.Stages)
	c, err := newChain(p)
	if err != nil {
		return 0, err
	}
	return 1 + c.missingBytes(), nil
}
