package sim

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// LowerBound returns seconds that no schedule of the step's work beats, however its microbatches
// differ, on the ranks of its replica. inFlight is as for the function LowerBound. The function's
// bound of the mean microbatch does not hold here: a light microbatch may go first, and passes the
// other stages faster than the mean.
func (s Step) LowerBound(inFlight []int) float64 {
	m := s.Schedule.Map
	slow := func(v int) float64 { return s.Network.Slowness(s.rank(m.Stage(v), s.Replica)) }
	if s.PerMicrobatch == nil {
		costs := make([]cost.Stage, len(s.Costs))
		for v, c := range s.Costs {
			costs[v] = c.Scale(slow(v))
		}
		return LowerBound(m, costs, s.Schedule.Microbatches, inFlight)
	}
	rows := make([][]cost.Stage, m.Virtual())
	for v, row := range s.PerMicrobatch {
		for _, c := range row[:s.Schedule.Microbatches] {
			rows[v] = append(rows[v], c.Scale(slow(v)))
		}
	}
	return unequalBound(m, rows, inFlight)
}

// path is the time of a microbatch on the other stages: head, trip and tail of oneChunk.
type path struct{ head, trip, tail float64 }

// unequalBound is LowerBound for microbatches of different cost. rows is by virtual stage and
// microbatch.
func unequalBound(m partition.Map, rows [][]cost.Stage, inFlight []int) float64 {
	microbatches := len(rows[0])
	paths := make([][]path, len(rows))
	for v := range paths {
		paths[v] = make([]path, microbatches)
		for b := range paths[v] {
			if v == 0 {
				paths[v][b].tail = rows[0][b].Weight
			} else {
				before, c := paths[v-1][b], rows[v-1][b]
				paths[v][b] = path{head: before.head + c.Forward, tail: before.tail + c.Input}
			}
		}
	}
	for v := len(rows) - 2; v >= 0; v-- {
		for b, c := range rows[v+1] {
			paths[v][b].trip = paths[v+1][b].trip + c.Forward + c.Input
		}
	}
	bound := 0.0
	for stage := range m.Stages {
		if m.Chunks == 1 {
			n := microbatches
			if inFlight != nil && slices.ContainsFunc(rows[stage], func(c cost.Stage) bool { return c.Input+c.Weight > 0 }) {
				n = min(n, inFlight[stage])
			}
			bound = max(bound, unequalChunk(rows[stage], paths[stage], n))
			continue
		}
		work := 0.0
		for chunk := range m.Chunks {
			for _, c := range rows[m.Place(stage, chunk)] {
				work += c.Seconds()
			}
		}
		bound = max(bound, work+least(paths[m.Place(stage, 0)], func(b int, p path) float64 { return p.head }))
	}
	return bound
}

// unequalChunk returns the bounds of oneChunk for unequal microbatches. W come in ascending order
// of microbatches, so the W before the last F are the first ones. The last F and the last I belong
// to other microbatches. F come in any order, so late F count with the shortest times. For a single
// microbatch, and for ⌈M/n⌉ microbatches that do not overlap, the shortest times count too. A
// further bound is the time of all microbatches, n at a time.
func unequalChunk(row []cost.Stage, paths []path, n int) float64 {
	late := len(row) - n
	var all, early cost.Stage
	flights, forwards := make([]float64, len(row)), make([]float64, len(row))
	together := 0.0
	for b, c := range row {
		all = all.Plus(c)
		if b < late {
			early = early.Plus(c)
		}
		forwards[b], flights[b] = c.Forward, c.Seconds()+paths[b].trip
		together += flights[b] / float64(n)
	}
	slices.Sort(forwards)
	slices.Sort(flights)
	head := least(paths, func(_ int, p path) float64 { return p.head })
	first := least(paths, func(b int, p path) float64 { return p.head + row[b].Forward + p.trip })
	over := least(paths, func(b int, p path) float64 { return max(0, p.tail-row[b].Weight) })
	tail := least(paths[late:], func(_ int, p path) float64 { return p.tail })
	back := least(paths[late:], func(b int, p path) float64 { return p.trip + row[late+b].Input + p.tail })
	behind := floats.Sum(forwards[:late])
	return max(
		head+all.Seconds(),
		head+all.Forward+early.Input+early.Weight+back,
		head+all.Forward+all.Input+early.Weight+tail,
		first+all.Input+all.Weight+behind,
		first+all.Input+behind+early.Weight+tail,
		head+floats.Sum(flights[:(len(row)+n-1)/n])+over,
		head+together,
	)
}

// least returns the smallest value of seconds over all microbatches.
func least(paths []path, seconds func(microbatch int, p path) float64) float64 {
	smallest := math.Inf(1)
	for b, p := range paths {
		smallest = min(smallest, seconds(b, p))
	}
	return smallest
}
