package search_test

import (
	"cmp"
	"math"
	"slices"
)

// job is an instruction of a stage that is not done: it cannot start earlier than
// head, and the step goes on for at least tail after its end.
type job struct{ head, took, tail float64 }

// bound returns a lower bound of the step's end when some instructions are done: the largest of the
// stages' bounds. A stage's bound is that of one machine whose jobs may be interrupted (Jackson
// 1955: of the jobs that can start, the one with the longest tail runs).
func (x *optimizer) bound() float64 {
	x.earliest()
	longest := 0.0
	for s := range x.next {
		x.jobs = x.jobs[:0]
		for op := range ops {
			for k := x.next[s][op]; k < x.Microbatches; k++ {
				took := x.took[s][op]
				x.jobs = append(x.jobs, job{x.early[s][op][k] - took, took, x.tail[s][op][k]})
			}
		}
		longest = max(longest, x.clock[s], interrupted(x.jobs))
	}
	return longest
}

// earliest finds the earliest ends of the instructions that are not done. It lets a stage run
// several ops at a time, but one instruction of each op.
func (x *optimizer) earliest() {
	last := len(x.next) - 1
	of := func(s, op, k int) float64 {
		if k < x.next[s][op] {
			return x.end[s][op][k]
		}
		return x.early[s][op][k]
	}
	set := func(s, op, k int, arrival float64) {
		if k < x.next[s][op] {
			return
		}
		start := max(x.clock[s], arrival)
		if k > x.next[s][op] {
			start = max(start, x.early[s][op][k-1])
		}
		x.early[s][op][k] = start + x.took[s][op]
	}
	for k := range x.Microbatches {
		for s := range x.next {
			arrival := 0.0
			if s > 0 {
				arrival = of(s-1, 0, k) + x.Message
			}
			if before := k - x.limit(); before >= 0 {
				arrival = max(arrival, of(s, 2, before))
			}
			set(s, 0, k, arrival)
		}
		for s := last; s >= 0; s-- {
			arrival := of(s, 0, k)
			if s < last {
				arrival = max(arrival, of(s+1, 1, k)+x.Message)
			}
			set(s, 1, k, arrival)
			set(s, 2, k, of(s, 1, k))
		}
	}
}

// interrupted returns the shortest makespan, tails included, of jobs on one machine
// that may be interrupted. It spends the seconds of the jobs.
func interrupted(jobs []job) float64 {
	slices.SortFunc(jobs, func(a, b job) int { return cmp.Compare(a.head, b.head) })
	clock, longest := 0.0, 0.0
	for {
		next, chosen := math.Inf(1), -1
		for i := range jobs {
			switch j := &jobs[i]; {
			case j.took < 0:
			case j.head > clock:
				next = min(next, j.head)
			case chosen < 0 || j.tail > jobs[chosen].tail:
				chosen = i
			}
		}
		switch {
		case chosen < 0 && math.IsInf(next, 1):
			return longest
		case chosen < 0:
			clock = next
		default:
			j := &jobs[chosen]
			if end := clock + j.took; end <= next {
				clock, j.took = end, -1
				longest = max(longest, end+j.tail)
			} else {
				j.took -= next - clock
				clock = next
			}
		}
	}
}
