package study

import (
	"maps"
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
	{"short_weight", func(*rand.Rand, int, int) cost.Stage { return cost.Stage{Forward: 1, Input: 1, Weight: 0.5} }},
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

// KindGreedy is the construction of ZB-V by its authors' scheduler, the faster with and
// without fills (see schedule.Rule). It has a column of its own, but is no kind of settings.
const KindGreedy schedule.Kind = "greedy-v"

// Unequal is how schedules do on unequal stages of one family.
type Unequal struct {
	Family   string
	Stages   int
	Chunks   int // of a stage; two lie in a V
	InFlight int // cap on every stage; 0: none
	// Mean is makespan / lower bound under the cap, mean over the draws; absent where
	// the kind breaks the cap in a draw. List is what auto takes where only lists may be taken.
	Mean   map[schedule.Kind]float64
	Worst  float64 // of auto
	Over   float64 // the most that auto took of the fastest other kind, lists left out
	Behind int     // draws in which auto took more than mostOver of that
}

// mostOver is what auto may take of the fastest other kind.
const mostOver = 1.01

// UnequalStages compares schedules on every family, for 8 stages and 16. Every draw has P
// to 4P microbatches on P stages. One chunk is without a cap on microbatches in flight, with
// one of P (enough for 1F1B and zb-h1) and one of 2P-1 (for zb-h2). Two chunks in a V are
// without a cap and with one of 2P (enough for zb-v). show is told how many of how many parts
// are done.
func UnequalStages(seed uint64, show func(done, total int64)) []Unequal {
	var list []Unequal
	for i, f := range families {
		for j, stages := range []int{8, 16} {
			list = append(list, f.compareCaps(seed, stages)...)
			show(int64(2*i+j+1), int64(2*len(families)))
		}
	}
	return list
}

func (f family) compareCaps(seed uint64, stages int) (list []Unequal) {
	for _, inFlight := range []int{0, stages, 2*stages - 1} {
		list = append(list, f.compare(seed, partition.Line(stages), inFlight))
	}
	for _, inFlight := range []int{0, 2 * stages} {
		list = append(list, f.compare(seed, partition.Map{Stages: stages, Chunks: 2, Vee: true}, inFlight))
	}
	return list
}

func (f family) compare(seed uint64, m partition.Map, inFlight int) Unequal {
	u := Unequal{Family: f.name, Stages: m.Stages, Chunks: m.Chunks, InFlight: inFlight, Mean: map[schedule.Kind]float64{}}
	o := schedule.ListOptions{Map: m, Costs: make([]cost.Stage, m.Virtual())}
	if inFlight > 0 {
		o.InFlight = slices.Repeat([]int{inFlight}, m.Stages)
	}
	fits := map[schedule.Kind]int{} // draws in which the kind keeps to the cap
	for draw := range uint64(draws) {
		rnd := random.Keyed(seed, draw)
		o.Microbatches = m.Stages + rnd.IntN(3*m.Stages+1)
		for v := range o.Costs {
			o.Costs[v] = f.draw(rnd, v, len(o.Costs))
		}
		bound := sim.LowerBound(m, o.Costs, o.Microbatches, o.InFlight)
		seconds, fastest := makespans(o), math.Inf(1)
		for kind, took := range seconds {
			u.Mean[kind] += took / bound / draws
			fits[kind]++
			if kind != schedule.KindAuto && kind != schedule.KindList {
				fastest = min(fastest, took)
			}
		}
		auto := seconds[schedule.KindAuto]
		u.Worst, u.Over = max(u.Worst, auto/bound), max(u.Over, auto/fastest)
		if auto > mostOver*fastest {
			u.Behind++
		}
	}
	maps.DeleteFunc(u.Mean, func(kind schedule.Kind, _ float64) bool { return fits[kind] < draws })
	return u
}

// makespans returns those of the schedules that keep to the cap.
func makespans(o schedule.ListOptions) map[schedule.Kind]float64 {
	all := map[schedule.Kind]float64{}
	kinds := []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2}
	if o.Map.Vee {
		kinds = []schedule.Kind{schedule.KindZBV}
		l := schedule.NewLister(o)
		all[KindGreedy] = min(l.Run(schedule.Rule{Rounds: true}), l.Run(schedule.Rule{Rounds: true, Fill: true}))
	}
	for _, kind := range kinds {
		s, err := schedule.New(kind, o.Map.Stages, o.Map.Chunks, o.Microbatches)
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
