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
func (s *Step) LowerBound(inFlight []int) float64 {
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

// microbatchPaths returns the path of every microbatch b from every virtual stage v, by virtual
// stage and microbatch:
//
//	head = Σ_{u<v} f_ub
//	trip = Σ_{u>v} (f+i)_ub
//	tail = Σ_{u<v} i_ub + w_0b
func microbatchPaths(rows [][]cost.Stage) [][]path {
	paths := make([][]path, len(rows))
	for v := range paths {
		paths[v] = make([]path, len(rows[0]))
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
	return paths
}

// unequalBound is LowerBound for microbatches of different cost. rows is by virtual stage and
// microbatch.
func unequalBound(m partition.Map, rows [][]cost.Stage, inFlight []int) float64 {
	paths := microbatchPaths(rows)
	bound := 0.0
	for stage := range m.Stages {
		if m.Chunks > 1 {
			bound = max(bound, chunksBound(m, rows, paths, stage))
			continue
		}
		n := len(rows[stage])
		if inFlight != nil && slices.ContainsFunc(rows[stage], func(c cost.Stage) bool { return c.Input+c.Weight > 0 }) {
			n = min(n, inFlight[stage])
		}
		bound = max(bound, newUnequalStage(rows[stage], paths[stage], n).bound())
	}
	return bound
}

// chunksBound is the bound of a stage with several chunks, the first of which is virtual stage v0:
//
//	min_b Σ_{v<v0} f_vb + Σ_b Σ_{v on stage} (f+i+w)_vb
//
// The stage has no work before the first F of v0 can start. Then the stage does all its work.
func chunksBound(m partition.Map, rows [][]cost.Stage, paths [][]path, stage int) float64 {
	work := 0.0
	for chunk := range m.Chunks {
		for _, c := range rows[m.Place(stage, chunk)] {
			work += c.Seconds()
		}
	}
	return work + least(paths[m.Place(stage, 0)], func(_ int, p path) float64 { return p.head })
}

// unequalStage is a stage with one chunk, of which at most n of M microbatches are in flight. Its
// bounds are those of oneChunk for microbatches that differ. Two facts hold for every schedule:
//
//   - W come in ascending order, F and I in any order. When the last F starts, at most n
//     microbatches are in flight. So the W of microbatches 0 to M-n-1 have ended: the early W. The
//     microbatches of the last F and of the last I are later ones, at least M-n.
//   - At most n F start before the first W has ended. The other F, at least M-n, are the late F.
//
// A bound does not know which microbatch comes first or last, so it takes the least time of all
// that can. The bounds were derived here; the tests compare them with the optimum of small steps.
type unequalStage struct {
	row      []cost.Stage // by microbatch: f, i and w
	paths    []path       // by microbatch
	inFlight int          // n
	all      cost.Stage   // Σ over all microbatches
	early    cost.Stage   // Σ over microbatches 0 to M-n-1
	lateF    float64      // Σ of the M-n shortest f: the late F take at least as long
	head     float64      // min_b head_b: no F starts earlier
	first    float64      // min_b (head+f+trip)_b: no I starts earlier
	tail     float64      // min over b ≥ M-n of tail_b: how long the step goes on after the last I
	flights  []float64    // ascending (f+trip+i+w)_b: how long a microbatch is in flight at least
	mean     float64      // Σ_b (f+trip+i+w)_b / n, added in the order of microbatches
}

func newUnequalStage(row []cost.Stage, paths []path, n int) *unequalStage {
	late := len(row) - n
	s := &unequalStage{row: row, paths: paths, inFlight: n, flights: make([]float64, len(row))}
	forwards := make([]float64, len(row))
	for b, c := range row {
		s.all = s.all.Plus(c)
		if b < late {
			s.early = s.early.Plus(c)
		}
		forwards[b], s.flights[b] = c.Forward, c.Seconds()+paths[b].trip
		s.mean += s.flights[b] / float64(n)
	}
	slices.Sort(forwards)
	slices.Sort(s.flights)
	s.lateF = floats.Sum(forwards[:late])
	s.head = least(paths, func(_ int, p path) float64 { return p.head })
	s.first = least(paths, func(b int, p path) float64 { return p.head + row[b].Forward + p.trip })
	s.tail = least(paths[late:], func(_ int, p path) float64 { return p.tail })
	return s
}

// bound returns the largest of the stage's bounds.
func (s *unequalStage) bound() float64 {
	return max(s.work(), s.lastForward(), s.lastInput(), s.firstInput(), s.inputs(), s.apart(), s.crowd())
}

// work is the bound of all work of the stage, which begins after head:
//
//	head + Σ(f+i+w)
func (s *unequalStage) work() float64 { return s.head + s.all.Seconds() }

// lastForward is the bound of the last F, of a microbatch b ≥ M-n. All F and the early I and W end
// before the end of this F. Then b makes its way to the last stage, back, and to stage 0:
//
//	head + Σf + Σ_{b<M-n} (i+w)_b + min_{b≥M-n} (trip+i+tail)_b
func (s *unequalStage) lastForward() float64 {
	late := len(s.row) - s.inFlight
	back := least(s.paths[late:], func(b int, p path) float64 { return p.trip + s.row[late+b].Input + p.tail })
	return s.head + s.all.Forward + s.early.Input + s.early.Weight + back
}

// lastInput is the bound of the last I, of a microbatch b ≥ M-n. Every I comes after its F, so all
// F and I end by the end of this I, and so do the early W. Then b goes on to stage 0:
//
//	head + Σ(f+i) + Σ_{b<M-n} w_b + min_{b≥M-n} tail_b
func (s *unequalStage) lastInput() float64 {
	return s.head + s.all.Forward + s.all.Input + s.early.Weight + s.tail
}

// firstInput is the bound of the first I. All I and W come after first. So do the late F, because
// the first W ends after first:
//
//	first + Σ(i+w) + lateF
func (s *unequalStage) firstInput() float64 {
	return s.first + s.all.Input + s.all.Weight + s.lateF
}

// inputs is the bound from the first I to the last. Between first and the end of the last I lie all
// I, the late F and the early W. Then the microbatch of the last I goes on to stage 0:
//
//	first + Σi + lateF + Σ_{b<M-n} w_b + min_{b≥M-n} tail_b
func (s *unequalStage) inputs() float64 {
	return s.first + s.all.Input + s.lateF + s.early.Weight + s.tail
}

// apart is the bound of ⌈M/n⌉ microbatches of which no two are in flight at once. They exist: color
// the microbatches in the order of their F, each unlike those in flight. This takes at most n colors,
// and one color has ⌈M/n⌉ microbatches. The last of these ends its W on this stage, and after its I
// it goes on to stage 0:
//
//	head + Σ of the ⌈M/n⌉ shortest (f+trip+i+w)_b + min_b max(0, tail_b-w_b)
func (s *unequalStage) apart() float64 {
	over := least(s.paths, func(b int, p path) float64 { return max(0, p.tail-s.row[b].Weight) })
	return s.head + floats.Sum(s.flights[:(len(s.row)+s.inFlight-1)/s.inFlight]) + over
}

// crowd is the bound of the time of all microbatches in flight. It passes at most n at a time:
//
//	head + Σ_b (f+trip+i+w)_b / n
func (s *unequalStage) crowd() float64 { return s.head + s.mean }

// least returns the smallest value of seconds over all microbatches.
func least(paths []path, seconds func(microbatch int, p path) float64) float64 {
	smallest := math.Inf(1)
	for b, p := range paths {
		smallest = min(smallest, seconds(b, p))
	}
	return smallest
}
