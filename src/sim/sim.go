// Package sim executes a schedule on costs, without ranks. What comes in is
// every stage's list of instructions and what they take; what goes out is when
// the step ends.
package sim

import "dynmo/src/schedule"

// Stage is what one microbatch costs on a stage, in seconds.
type Stage struct {
	Forward, Input, Weight float64
}

// Makespan returns the seconds from the first start to the last end of a step
// of so many microbatches: every stage carries out its list in order, F waits
// for F of the stage before, B and I wait for B or I of the stage behind.
// Messages are free. The lists are ones that schedule.Check accepts; it panics
// on a deadlock.
func Makespan(lists [][]schedule.Instr, microbatches int, stages []Stage) float64 {
	n := len(lists)
	forward, input := done(n, microbatches), done(n, microbatches)
	clock, next := make([]float64, n), make([]int, n)
	left := 0
	for _, list := range lists {
		left += len(list)
	}
	for left > 0 {
		before := left
		for s, list := range lists {
			for next[s] < len(list) {
				in := list[next[s]]
				ready := 0.0
				switch {
				case in.Op == schedule.F && s > 0:
					ready = forward[s-1][in.Microbatch]
				case (in.Op == schedule.B || in.Op == schedule.I) && s < n-1:
					ready = input[s+1][in.Microbatch]
				}
				if ready < 0 {
					break // not done yet
				}
				clock[s] = max(clock[s], ready)
				switch in.Op {
				case schedule.F:
					clock[s] += stages[s].Forward
					forward[s][in.Microbatch] = clock[s]
				case schedule.I:
					clock[s] += stages[s].Input
					input[s][in.Microbatch] = clock[s]
				case schedule.W:
					clock[s] += stages[s].Weight
				case schedule.B:
					clock[s] += stages[s].Input + stages[s].Weight
					input[s][in.Microbatch] = clock[s]
				}
				next[s]++
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
