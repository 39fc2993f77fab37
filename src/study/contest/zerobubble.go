package contest

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// zeroBubble is the heuristic of automatic scheduling (Qi et al. 2023, section 3.1),
// by what the paper says of it. In the warm-up a stage does as many F as the cap
// allows and end before the first gradient can arrive; overfill lets another one start
// that delays it. Then F and I alternate, unless the other one can start earlier. W
// fills in where a stage would wait for at least as long as it takes, where a shorter
// wait would make the stage the one that has waited longest of all, and where the cap
// allows no F. A stage that is more than one F ahead of the next one may skip its turn
// where I is there. The last instructions are the W that are left.
type zeroBubble struct {
	*builder
	overfill bool
	skip     bool
	patience float64 // not in the paper: the share of F or I by which the other one is waited for

	first  []float64 // by stage: when the first gradient can arrive
	waited []float64 // by stage: since its first instruction
	order  []int     // by stage: which of F and I follows in turn
}

func newZeroBubble(p Problem, overfill, skip bool, patience float64) *zeroBubble {
	n := len(p.Costs)
	z := &zeroBubble{
		builder:  newBuilder(p, partition.Line(n)),
		overfill: overfill, skip: skip, patience: patience,
		first: make([]float64, n), waited: make([]float64, n), order: make([]int, n),
	}
	for _, c := range p.Costs {
		z.first[n-1] += c.Forward
	}
	z.first[n-1] += float64(n-1) * p.Message
	for s := n - 2; s >= 0; s-- {
		z.first[s] = z.first[s+1] + p.Costs[s+1].Input + p.Message
	}
	return z
}

func (z *zeroBubble) choose(s int) choice {
	done := z.next[s]
	switch {
	case done[1] == z.Microbatches:
		return choice{s, 2, z.start(s, 2)}
	case done[1] == 0:
		return z.warmup(s)
	}
	op := z.wanted(s)
	start := z.start(s, op)
	if other := z.start(s, 1-op); other+z.patience*z.took[s][1-op] < start {
		op, start = 1-op, other
	}
	if done[2] < done[1] && (op == 0 && z.full(s) || z.fills(s, op, start)) {
		return choice{s, 2, z.clock[s]}
	}
	return choice{s, op, start}
}

// warmup chooses before the first I of a stage.
func (z *zeroBubble) warmup(s int) choice {
	start := z.start(s, 0)
	if start+z.took[s][0] <= z.first[s] || z.overfill && start < z.first[s] || z.next[s][0] == 0 {
		return choice{s, 0, start}
	}
	return choice{s, 1, z.start(s, 1)}
}

// wanted returns which of F and I a stage is to do.
func (z *zeroBubble) wanted(s int) int {
	done := z.next[s]
	switch {
	case done[0] == z.Microbatches, z.full(s) && done[2] == done[1]:
		return 1
	case z.skip && s < len(z.next)-1 && done[0] > z.next[s+1][0]+1 && z.start(s, 1) == z.clock[s]:
		return 1
	}
	return z.order[s]
}

// full reports whether the cap allows no F.
func (z *zeroBubble) full(s int) bool { return z.held[s] >= z.limit() }

// fills reports whether W is to fill the time until something else can start.
func (z *zeroBubble) fills(s, op int, start float64) bool {
	if math.IsInf(start, 1) {
		start = z.expected(s, op)
	}
	gap := start - z.clock[s]
	return gap > 0 && (gap >= z.took[s][2] || z.waited[s]+gap > slices.Max(z.waited))
}

// expected returns when the next instruction of an op can start at the earliest if
// what it needs has not begun.
func (z *zeroBubble) expected(s, op int) float64 {
	from := s - 1
	if op == 1 {
		from = s + 1
	}
	if from < 0 || from == len(z.next) {
		return z.clock[s]
	}
	behind := z.next[s][op] - z.next[from][op] + 1
	return z.clock[from] + float64(behind)*z.took[from][op] + z.Message
}

func (z *zeroBubble) done(c choice, gap float64) {
	z.waited[c.virtual] += gap
	if c.op < 2 {
		z.order[c.virtual] = 1 - c.op
	}
}
