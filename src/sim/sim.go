// Package sim executes a schedule on costs, without ranks. What comes in is
// every stage's list of instructions and what they take; what goes out is when
// the step ends.
package sim

import (
	"dynmo/src/cost"
	"dynmo/src/schedule"
)

// Makespan returns the seconds from the first start to the last end of a step:
// every stage carries out its list in order, F waits for F of the virtual stage
// before, B and I wait for B or I of the one behind. Messages are free. costs
// is by virtual stage. The schedule is one that Check accepts; it panics on a
// deadlock.
func Makespan(s schedule.Schedule, costs []cost.Stage) float64 {
	n := s.Map.Virtual()
	forward, input := done(n, s.Microbatches), done(n, s.Microbatches)
	clock, next := make([]float64, len(s.Lists)), make([]int, len(s.Lists))
	left := 0
	for _, list := range s.Lists {
		left += len(list)
	}
	for left > 0 {
		before := left
		for stage, list := range s.Lists {
			for next[stage] < len(list) {
				in := list[next[stage]]
				v := s.Map.Place(stage, in.Chunk)
				ready := 0.0
				switch {
				case in.Op == schedule.F && v > 0:
					ready = forward[v-1][in.Microbatch]
				case (in.Op == schedule.B || in.Op == schedule.I) && v < n-1:
					ready = input[v+1][in.Microbatch]
				}
				if ready < 0 {
					break // not done yet
				}
				now := &clock[stage]
				*now = max(*now, ready)
				switch in.Op {
				case schedule.F:
					*now += costs[v].Forward
					forward[v][in.Microbatch] = *now
				case schedule.I:
					*now += costs[v].Input
					input[v][in.Microbatch] = *now
				case schedule.W:
					*now += costs[v].Weight
				case schedule.B:
					*now += costs[v].Input + costs[v].Weight
					input[v][in.Microbatch] = *now
				}
				next[stage]++
				left--
			}
		}
		if left == before {
			panic("sim: the schedule is deadlocked")
		}
	}
	end := 0.0
	for _, t := range clock {
		end = max(end, t)
	}
	return end
}

// done returns a table of end times, all still unknown: -1.
func done(stages, microbatches int) [][]float64 {
	table := make([][]float64, stages)
	for s := range table {
		table[s] = make([]float64, microbatches)
		for m := range table[s] {
			table[s][m] = -1
		}
	}
	return table
}
