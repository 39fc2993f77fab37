package routing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"dynmo/src/piece"
	"dynmo/src/random"
)

// MadeUp is a routing that nobody recorded. Equal values give equal rows.
type MadeUp struct {
	Experts  int
	Replicas int // over which experts are spread
	Rows     int // of a microbatch of all replicas
	Seed     uint64
}

// noise is the largest relative deviation of an expert's rows in a step from its share. It is drawn
// anew in each step, so a forecast from earlier steps is off by it.
const noise = 0.2

// The made-up routings. Blocks differ in which experts are hot.
const (
	hotTimes      = 4   // hot-rank: how many times the rows of others the experts of one replica have
	rotatingTimes = 8   // rotating: the same of the hot expert
	rotatingSteps = 20  // rotating: steps until another expert is the hot one
	burstShare    = 0.3 // burst: share of all rows that the hot expert has
	burstSteps    = 10  // burst: how long a burst lasts
	burstEvery    = 4   // one of this number of periods of burstSteps has a burst
)

// makers return the shares of experts by the name of a routing; they need not add up to 1.
var makers = map[string]func(w MadeUp, step, block int) []float64{
	"zipf-0.5": func(w MadeUp, _, block int) []float64 { return w.zipf(block, 0.5) },
	"zipf-1":   func(w MadeUp, _, block int) []float64 { return w.zipf(block, 1) },
	"hot-rank": func(w MadeUp, _, block int) []float64 {
		hot, list := w.draw(block).IntN(w.Replicas), w.even()
		for e, on := range piece.Even(w.Experts, w.Replicas) {
			if on[0] == hot {
				list[e] = hotTimes
			}
		}
		return list
	},
	"rotating": func(w MadeUp, step, block int) []float64 {
		list := w.even()
		list[(w.draw(block).IntN(w.Experts)+step/rotatingSteps)%w.Experts] = rotatingTimes
		return list
	},
	"burst": func(w MadeUp, step, block int) []float64 {
		list, draw := w.even(), w.draw(block, uint64(step/burstSteps))
		if draw.IntN(burstEvery) == 0 {
			list[draw.IntN(w.Experts)] = burstShare / (1 - burstShare) * float64(w.Experts-1)
		}
		return list
	},
}

// MadeUpNames lists the routings that are made up.
func MadeUpNames() []string {
	var names []string
	for name := range makers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Named returns what says the rows of a made-up routing by expert, in a microbatch of a step.
func (w MadeUp) Named(name string) (func(step, block, microbatch int) []int64, error) {
	shares := makers[name]
	if shares == nil {
		return nil, fmt.Errorf("routing %q: unknown, want one of %s", name, strings.Join(MadeUpNames(), ", "))
	}
	return func(step, block, microbatch int) []int64 {
		list, sum := shares(w, step, block), 0.0
		draw := random.Keyed(w.Seed, stream, uint64(block), uint64(step), 1)
		for e := range list {
			list[e] *= 1 + noise*(2*draw.Float64()-1)
			sum += list[e]
		}
		rows := make([]int64, len(list))
		draw = random.Keyed(w.Seed, stream, uint64(block), uint64(step), 2, uint64(microbatch))
		for e, x := range list {
			mean := x / sum * float64(w.Rows)
			rows[e] = int64(math.Round(max(0, mean+math.Sqrt(mean)*draw.NormFloat64())))
		}
		return rows
	}, nil
}

// stream is that of the random numbers.
const stream = 0x6d6f65

func (w MadeUp) draw(block int, key ...uint64) *rand.Rand {
	return random.Keyed(append([]uint64{w.Seed, stream, uint64(block)}, key...)...)
}

func (w MadeUp) even() []float64 { return slices.Repeat([]float64{1}, w.Experts) }

// zipf returns shares that fall as 1/rank^s, of experts in any order.
func (w MadeUp) zipf(block int, s float64) []float64 {
	list := make([]float64, w.Experts)
	for rank, e := range w.draw(block).Perm(w.Experts) {
		list[e] = math.Pow(float64(rank+1), -s)
	}
	return list
}

// Rows returns the rows by expert of a microbatch in a step. A block takes the recorded block at the same
// share of the depth. Microbatches take consecutive recorded ones, and every step begins with another.
func (r Recording) Rows(blocks int, seed uint64) func(step, block, microbatch int) []int64 {
	first := random.Keyed(seed, recordedStream).IntN(r.Slots)
	return func(step, block, microbatch int) []int64 {
		list := make([]int64, r.Experts)
		for e, n := range r.Loads(block*r.Blocks/blocks, (first+step*slotStride+microbatch)%r.Slots) {
			list[e] = int64(n)
		}
		return list
	}
}

// slotStride is how many recorded microbatches lie between the first ones of two steps: a
// prime, so that steps begin with each of them.
const slotStride = 29

// recordedStream is that of the random numbers of recordings.
const recordedStream = 2
