package main

import (
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// simAnswer is the output of dynmo simulate.
type simAnswer study.Answer

// runsOf is how many runs an answer mostly needs: the run and two baselines, and these again with a
// small head.
const runsOf = 6

// stepsIn returns how many steps a series has.
func stepsIn(series cost.Series) int {
	n := 0
	for _, s := range series {
		n += max(1, s.Steps)
	}
	return n
}

// stepsOf returns a function that advances a bar by a number of steps. total is the number of all
// steps.
func stepsOf[N int | int64](bar *record.Bar, total N) func(N) {
	var done N
	return func(steps N) {
		done += steps
		bar.Show(int64(done), int64(total))
	}
}

// copies returns after how many steps pieces of layers moved, and the mean bytes of copies in a
// step.
func (a simAnswer) copies() (placed int, bytes int64) {
	for _, s := range a.Segments {
		bytes += s.Copied * int64(s.Steps)
		placed += s.Placed
	}
	return placed, bytes / int64(max(1, a.Steps))
}
