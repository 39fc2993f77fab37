package study

import (
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// draws is how many sets of costs a family has.
const draws = 20

// family is a way in which stages can be unequal; draw returns what a stage
// costs.
type family struct {
	name string
	draw func(rnd *rand.Rand, stage, stages int) cost.Stage
}

var families = []family{
	{"equal", func(*rand.Rand, int, int) cost.Stage { return around(nil, 0) }},
	{"within_15", func(rnd *rand.Rand, _, _ int) cost.Stage { return around(rnd, 0.15) }},
	{"within_40", func(rnd *rand.Rand, _, _ int) cost.Stage { return around(rnd, 0.4) }},
	{"ragged", func(rnd *rand.Rand, _, _ int) cost.Stage {
		return cost.Stage{Forward: 0.5 + rnd.Float64(), Input: 0.5 + rnd.Float64(), Weight: 0.5 + rnd.Float64()}
	}},
	{"frozen_third", func(rnd *rand.Rand, stage, stages int) cost.Stage {
		c := around(rnd, 0.15)
		if stage < (stages+1)/3 {
			c.Input, c.Weight = 0, 0
		}
		return c
	}},
}

// around returns f = i = w, uniform in [1-x, 1+x].
func around(rnd *rand.Rand, x float64) cost.Stage {
	one := cost.Stage{Forward: 1, Input: 1, Weight: 1}
	if x == 0 {
		return one
	}
	return one.Scale(1 + x*(2*rnd.Float64()-1))
}

// Unequal is how schedules do on unequal stages of one family.
type Unequal struct {
	Family               string
	Stages, Microbatches int
	InFlight             int // cap on every stage; 0: none
	// Mean is makespan / lower bound under the cap, mean over the draws; absent where
	// the kind breaks the cap. List is what auto takes where only lists may be taken.
	Mean   map[schedule.Kind]float64
	Worst  float64 // of auto
	Behind int     // draws in which auto was slower than 1F1B
}

// UnequalStages compares schedules on every family, for 8 stages with 16
// microbatches and 16 with 32, without a cap on microbatches in flight, with
// one of the stages P (enough for 1F1B and zb-h1) and one of 2P-1 (for zb-h2).
func UnequalStages() []Unequal {
	var list []Unequal
	for _, f := range families {
		for _, stages := range []int{8, 16} {
			for _, inFlight := range []int{0, stages, 2*stages - 1} {
				list = append(list, f.compare(stages, 2*stages, inFlight))
			}
		}
	}
	return list
}

func (f family) compare(stages, microbatches, inFlight int) Unequal {
	u := Unequal{Family: f.name, Stages: stages, Microbatches: microbatches, InFlight: inFlight, Mean: map[schedule.Kind]float64{}}
	o := schedule.ListOptions{Costs: make([]cost.Stage, stages), Microbatches: microbatches}
	if inFlight > 0 {
		o.InFlight = slices.Repeat([]int{inFlight}, stages)
	}
	for draw := range uint64(draws) {
		rnd := random.Keyed(draw)
		for stage := range o.Costs {
			o.Costs[stage] = f.draw(rnd, stage, stages)
		}
		bound := sim.LowerBound(partition.Line(stages), o.Costs, microbatches, o.InFlight)
		seconds := makespans(o)
		for kind, took := range seconds {
			u.Mean[kind] += took / bound / draws
		}
		auto := seconds[schedule.KindAuto]
		u.Worst = max(u.Worst, auto/bound)
		if plain, ok := seconds[schedule.Kind1F1B]; ok && auto > plain {
			u.Behind++
		}
	}
	return u
}

// makespans returns those of the schedules that keep to the cap.
func makespans(o schedule.ListOptions) map[schedule.Kind]float64 {
	all := map[schedule.Kind]float64{}
	for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2} {
		s, err := schedule.New(kind, len(o.Costs), 1, o.Microbatches)
		if err != nil {
			panic("study: " + err.Error()) // these kinds exist for all numbers
		}
		fits := true
		for stage, most := range o.InFlight {
			fits = fits && s.Cap(stage) <= most
		}
		if fits {
			all[kind] = sim.Makespan(s, o.Costs)
		}
	}
	_, all[schedule.KindList] = search.Auto(o, func(s schedule.Schedule) float64 {
		if s.Kind != schedule.KindList {
			return math.Inf(1)
		}
		return sim.Makespan(s, o.Costs)
	})
	_, all[schedule.KindAuto] = search.Auto(o, func(s schedule.Schedule) float64 { return sim.Makespan(s, o.Costs) })
	return all
}
