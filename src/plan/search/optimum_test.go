package search_test

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/schedule"
)

const (
	// mostStages and mostMicrobatches bound what Optimum is for: what is done on all
	// stages is a key of 64 bits.
	mostStages, mostMicrobatches = 5, 15
	// rounding is what makespans of the same instructions may differ by, as a share.
	rounding = 1e-12
)

// Optimum returns the smallest makespan of all legal schedules of one chunk on each stage, or upper
// if none is below that. It gives up after the given number of nodes; exact says that it did not. A
// problem has at most 5 stages and 15 microbatches.
//
// Branch and bound over active schedules (Giffler & Thompson 1960). Of the instructions that can
// come next on any stage, one ends first. On its stage the next one is this instruction, or another
// that can start before that end. Microbatches are alike, so those of each op and stage may be
// numbered in their order. Then the cap says that F of microbatch k follows W of k-cap. A node is
// cut off if its bound reaches the best makespan. It is also cut off if another node has the same
// instructions done and nothing later.
func (p Problem) Optimum(upper float64, nodes int) (seconds float64, exact bool) {
	if len(p.Costs) > mostStages || p.Microbatches > mostMicrobatches {
		panic("more stages or microbatches than Optimum is for")
	}
	x := newSearch(p, upper, nodes)
	x.visit()
	return x.best, x.left > 0
}

// ops are the instructions of a microbatch on a stage: F, I and W, in this order.
const ops = 3

var opOf = [ops]schedule.Op{schedule.F, schedule.I, schedule.W}

// optimizer is the state of Optimum.
type optimizer struct {
	Problem
	took  [][ops]float64 // by stage and op
	tail  [][ops][]float64
	next  [][ops]int       // by stage and op: the microbatch that comes next
	clock []float64        // by stage: when it is free
	end   [][ops][]float64 // by stage, op and microbatch: of what is done
	early [][ops][]float64 // the same, of what is not: no earlier end is possible
	jobs  []job
	best  float64
	left  int                    // nodes
	seen  map[uint64][][]float64 // by what is done: when what follows can start
}

// branch is an instruction that may come next on a stage.
type branch struct {
	stage, op   int
	start, took float64
	bound       float64
}

func newSearch(p Problem, upper float64, nodes int) *optimizer {
	n := len(p.Costs)
	x := &optimizer{
		Problem: p, took: make([][ops]float64, n), next: make([][ops]int, n), clock: make([]float64, n),
		best: upper, left: nodes, seen: map[uint64][][]float64{},
	}
	table := func() [][ops][]float64 {
		t := make([][ops][]float64, n)
		for s := range t {
			for op := range ops {
				t[s][op] = make([]float64, p.Microbatches)
			}
		}
		return t
	}
	x.tail, x.end, x.early = table(), table(), table()
	for s, c := range p.Costs {
		x.took[s] = seconds(c)
	}
	x.tails()
	return x
}

// seconds returns costs by op.
func seconds(c cost.Stage) [ops]float64 { return [ops]float64{c.Forward, c.Input, c.Weight} }

// tails finds a lower bound of the time between an instruction's end and the step's end. The same
// stage, or the next stage on the microbatch's way, still has work from this microbatch on, and
// more work follows that.
func (x *optimizer) tails() {
	last := len(x.took) - 1
	for k := x.Microbatches - 1; k >= 0; k-- {
		more := float64(x.Microbatches - k)
		for s := range x.took {
			f, i, w := x.took[s][0], x.took[s][1], x.took[s][2]
			t := (more - 1) * w
			if next := k + x.limit(); next < x.Microbatches {
				t = max(t, f+x.tail[s][0][next])
			}
			x.tail[s][2][k] = t
			t = max((more-1)*i+more*w, w+t)
			if s > 0 {
				before := x.took[s-1]
				t = max(t, x.Message+max(before[1]+x.tail[s-1][1][k], more*(before[1]+before[2])))
			}
			x.tail[s][1][k] = t
		}
		for s := last; s >= 0; s-- {
			f, i, w := x.took[s][0], x.took[s][1], x.took[s][2]
			t := (more-1)*f + more*(i+w)
			if s == last {
				t = max(t, i+x.tail[s][1][k])
			} else {
				behind := x.took[s+1]
				t = max(t, x.Message+max(behind[0]+x.tail[s+1][0][k], more*(behind[0]+behind[1]+behind[2])))
			}
			x.tail[s][0][k] = t
		}
	}
}

// arrival returns when what the next instruction of an op needs is there, +Inf if it
// is not known.
func (x *optimizer) arrival(s, op int) float64 {
	k, done := x.next[s][op], x.next[s]
	switch {
	case k == x.Microbatches || op > 0 && k == done[op-1] || op == 0 && k-done[2] >= x.limit():
		return math.Inf(1)
	case op == 0 && s > 0:
		return x.sent(s-1, op, k)
	case op == 1 && s < len(x.next)-1:
		return x.sent(s+1, op, k)
	}
	return 0
}

// sent returns when the result of an instruction arrives on the stage beside it, +Inf
// if it is not done.
func (x *optimizer) sent(s, op, k int) float64 {
	if x.next[s][op] <= k {
		return math.Inf(1)
	}
	return x.end[s][op][k] + x.Message
}

// visit goes on from what is done.
func (x *optimizer) visit() {
	if x.left == 0 {
		return
	}
	x.left--
	list := x.branches()
	if len(list) == 0 {
		x.best = min(x.best, slices.Max(x.clock))
		return
	}
	for i := range list {
		before := x.do(list[i])
		list[i].bound = x.bound()
		x.undo(list[i], before)
	}
	slices.SortStableFunc(list, func(a, b branch) int { return cmp.Compare(a.bound, b.bound) })
	for _, b := range list {
		if b.bound >= x.best*(1-rounding) {
			return
		}
		before := x.do(b)
		if !x.dominated() {
			x.visit()
		}
		x.undo(b, before)
	}
}

// do carries out an instruction, and returns when its stage was free.
func (x *optimizer) do(b branch) (clock float64) {
	clock = x.clock[b.stage]
	x.clock[b.stage] = b.start + b.took
	x.end[b.stage][b.op][x.next[b.stage][b.op]] = x.clock[b.stage]
	x.next[b.stage][b.op]++
	return clock
}

func (x *optimizer) undo(b branch, clock float64) {
	x.next[b.stage][b.op]--
	x.clock[b.stage] = clock
}

// branches returns alternative next instructions of one stage, none when all is done.
func (x *optimizer) branches() []branch {
	first := branch{start: math.Inf(1)}
	for s := range x.next {
		for op := range ops {
			if start := max(x.clock[s], x.arrival(s, op)); start+x.took[s][op] < first.start+first.took {
				first = branch{stage: s, op: op, start: start, took: x.took[s][op]}
			}
		}
	}
	if math.IsInf(first.start, 1) {
		return nil
	}
	list := append(make([]branch, 0, ops), first)
	for op := range ops {
		start := max(x.clock[first.stage], x.arrival(first.stage, op))
		if op != first.op && start < first.start+first.took {
			list = append(list, branch{stage: first.stage, op: op, start: start, took: x.took[first.stage][op]})
		}
	}
	return list
}

// dominated reports whether a node with the same instructions done had nothing that
// can start later, and keeps this one if not.
func (x *optimizer) dominated() bool {
	key := uint64(0)
	var when []float64
	for s, done := range x.next {
		for op := range ops {
			key = key<<4 | uint64(done[op])
		}
		when = append(when, x.clock[s])
		if s > 0 {
			for k := done[0]; k < x.next[s-1][0]; k++ {
				when = append(when, max(x.clock[s], x.sent(s-1, 0, k)))
			}
		}
		if s < len(x.next)-1 {
			for k := done[1]; k < x.next[s+1][1]; k++ {
				when = append(when, max(x.clock[s], x.sent(s+1, 1, k)))
			}
		}
	}
	list := x.seen[key]
	for _, other := range list {
		if noneLater(other, when) {
			return true
		}
	}
	list = slices.DeleteFunc(list, func(other []float64) bool { return noneLater(when, other) })
	x.seen[key] = append(list, when)
	return false
}

// noneLater reports whether nothing in a is later than in b.
func noneLater(a, b []float64) bool {
	for i, t := range a {
		if t > b[i] {
			return false
		}
	}
	return true
}
