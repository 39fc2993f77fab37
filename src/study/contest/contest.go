package contest

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"dynmo/src/schedule"
)

const (
	// AllInstances is how many steps auto is held against heuristics on.
	AllInstances = 765
	// AllCases is how many small steps auto is held against the optimum on.
	AllCases = 1800
	// nodes bounds the search for the optimum of a small step to seconds.
	nodes = 1_000_000
)

// Ratio is auto's makespan over that of something else on a step.
type Ratio struct {
	Problem
	Over float64
	Open bool // whether the optimum may be shorter than what was found
}

// Heuristics returns auto's makespan over that of the best heuristic at the same cap,
// on the first n instances of a seed.
func Heuristics(n int, seed uint64) []Ratio {
	all := instances(seed)
	return ratiosOf(min(n, len(all)), func(i int) Ratio {
		return Ratio{Problem: all[i], Over: over(all[i].auto(), all[i].rival())}
	})
}

// Optima returns auto's makespan over the optimum of one chunk on each stage, on the
// first n small steps of a seed.
func Optima(n int, seed uint64) []Ratio {
	return ratiosOf(n, func(i int) Ratio {
		p := small(i, seed)
		auto := p.auto()
		least, exact := p.Optimum(min(auto, p.rival()), nodes)
		return Ratio{Problem: p, Over: over(auto, least), Open: !exact}
	})
}

// over divides makespans; steps without work are alike.
func over(a, b float64) float64 {
	if a == b {
		return 1
	}
	return a / b
}

// rival returns the makespan of the best heuristic that keeps to the cap.
func (p Problem) rival() float64 {
	all := append(p.automatic(), p.byNumbers()...)
	if p.Vee {
		all = append(all, p.greedyVees()...)
	}
	best := math.Inf(1)
	for _, s := range all {
		best = min(best, p.seconds(s))
	}
	return best
}

var either = []bool{false, true}

// automatic returns what automatic scheduling makes with each of its settings.
func (p Problem) automatic() []schedule.Schedule {
	var list []schedule.Schedule
	for _, overfill := range either {
		for _, skip := range either {
			for _, patience := range []float64{0, 0.5, 1} {
				z := newZeroBubble(p, overfill, skip, patience)
				list = append(list, z.build(z))
			}
		}
	}
	return list
}

// greedyVees returns what the greedy construction of a V makes with each of its
// settings.
func (p Problem) greedyVees() []schedule.Schedule {
	var list []schedule.Schedule
	for _, theta := range []float64{0, 0.5, 1} {
		for _, forwardFirst := range either {
			for _, deepFirst := range either {
				for _, room := range either {
					v := newVee(p, theta, forwardFirst, deepFirst, room)
					list = append(list, v.build(v))
				}
			}
		}
	}
	return list
}

// byNumbers returns the schedules that follow from numbers alone and keep to the cap.
func (p Problem) byNumbers() []schedule.Schedule {
	var list []schedule.Schedule
	for _, k := range []struct {
		kind   schedule.Kind
		chunks int
	}{{schedule.Kind1F1B, 1}, {schedule.KindZBH1, 1}, {schedule.KindZBH2, 1}, {schedule.KindZBV, 2}} {
		if k.chunks > 1 && !p.Vee {
			continue
		}
		s, err := schedule.New(k.kind, len(p.Costs), k.chunks, p.Microbatches)
		if err != nil {
			panic("contest: " + err.Error()) // these exist for all numbers
		}
		if p.fits(s) {
			list = append(list, s)
		}
	}
	return list
}

// ratiosOf returns what of says for each of n, on all cores.
func ratiosOf(n int, of func(i int) Ratio) []Ratio {
	list := make([]Ratio, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				list[i] = of(int(i))
			}
		})
	}
	all.Wait()
	return list
}
