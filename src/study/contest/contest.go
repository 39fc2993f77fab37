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
// on the first n instances.
func Heuristics(n int) []Ratio {
	all := instances()
	return ratiosOf(min(n, len(all)), func(i int) Ratio {
		return Ratio{Problem: all[i], Over: over(all[i].auto(), all[i].rival())}
	})
}

// Optima returns auto's makespan over the optimum of one chunk on each stage, on the
// first n small steps.
func Optima(n int) []Ratio {
	return ratiosOf(n, func(i int) Ratio {
		p := small(i)
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
	best := math.Inf(1)
	try := func(s schedule.Schedule) { best = min(best, p.seconds(s)) }
	either := []bool{false, true}
	for _, overfill := range either {
		for _, skip := range either {
			for _, patience := range []float64{0, 0.5, 1} {
				z := newZeroBubble(p, overfill, skip, patience)
				try(z.build(z))
			}
		}
	}
	fixed := []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2}
	if p.Vee {
		fixed = append(fixed, schedule.KindZBV)
		for _, theta := range []float64{0, 0.5, 1} {
			for _, forwardFirst := range either {
				for _, deepFirst := range either {
					for _, room := range either {
						v := newVee(p, theta, forwardFirst, deepFirst, room)
						try(v.build(v))
					}
				}
			}
		}
	}
	for _, kind := range fixed {
		chunks := 1
		if kind == schedule.KindZBV {
			chunks = 2
		}
		s, err := schedule.New(kind, len(p.Costs), chunks, p.Microbatches)
		if err != nil {
			panic("contest: " + err.Error()) // these exist for all numbers
		}
		if p.fits(s) {
			try(s)
		}
	}
	return best
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
