package contest

import (
	"fmt"
	"math/rand/v2"

	"dynmo/src/cost"
	"dynmo/src/random"
)

// kind is a way in which stages can be unequal; draw returns what a stage costs.
type kind struct {
	name string
	draw func(rnd *rand.Rand, set, stage, stages int) cost.Stage
}

// ratios are f, i and w of stages that are equal, by set.
var ratios = []cost.Stage{
	{Forward: 1, Input: 1, Weight: 1}, {Forward: 1, Input: 1, Weight: 0.5}, {Forward: 1, Input: 1.4, Weight: 0.9},
	{Forward: 1, Input: 0.8, Weight: 1.2}, {Forward: 1, Input: 1.2, Weight: 0.6},
}

// kinds go from equal to ragged stages. f, i and w stand to each other as on
// attention and MLP, but for those of ragged, which are drawn apart.
var kinds = []kind{
	{"equal", func(_ *rand.Rand, set, _, _ int) cost.Stage { return ratios[set%len(ratios)] }},
	{"within 15 %", func(rnd *rand.Rand, set, _, _ int) cost.Stage { return scaled(rnd, set, 0.15) }},
	{"within 40 %", func(rnd *rand.Rand, set, _, _ int) cost.Stage { return scaled(rnd, set, 0.4) }},
	{"heavy head", func(rnd *rand.Rand, set, stage, stages int) cost.Stage {
		c := scaled(rnd, set, 0.15)
		if stage == stages-1 {
			c = c.Scale(1.5)
		}
		return c
	}},
	{"ragged", func(rnd *rand.Rand, _, _, _ int) cost.Stage {
		return cost.Stage{Forward: 0.5 + rnd.Float64(), Input: 0.5 + rnd.Float64(), Weight: 0.5 + rnd.Float64()}
	}},
}

// scaled returns a ratio times a factor in [1-x, 1+x].
func scaled(rnd *rand.Rand, set int, x float64) cost.Stage {
	return ratios[set%len(ratios)].Scale(1 + x*(2*rnd.Float64()-1))
}

var (
	depths   = []int{4, 8, 6, 12, 16} // stages of the sets of a kind
	messages = []float64{0, 0.1, 0.3} // seconds; f is about 1
)

// folded are the caps under which a V is tried, each on one set of a kind, as parts of
// the stages: the memory of ZB-V and of V-Half (Qi et al. 2024).
var folded = []int{1, 2}

// instances returns the steps on which auto is held against heuristics: 5 kinds, 5
// sets of costs of each, 3 messages, P, 2P and 4P microbatches, caps of P/2, P and
// 2P-1, and of P and P/2 on one set each where a V may be tried too. They come in an
// order of which any part has some of all.
func instances(seed uint64) []Problem {
	var all []Problem
	for k, kind := range kinds {
		for set, stages := range depths {
			rnd := random.Keyed(uint64(k), uint64(set), 30+seed)
			costs := make([]cost.Stage, stages)
			for s := range costs {
				costs[s] = kind.draw(rnd, set, s, stages)
			}
			for _, message := range messages {
				for _, times := range []int{1, 2, 4} {
					p := Problem{Name: fmt.Sprintf("%s %d", kind.name, set+1), Costs: costs, Message: message, Microbatches: times * stages}
					for _, p.InFlight = range []int{stages / 2, stages, 2*stages - 1} {
						all = append(all, p)
					}
					if n := (k + set) % len(depths); n < len(folded) {
						p.InFlight, p.Vee = stages/folded[n], true
						all = append(all, p)
					}
				}
			}
		}
	}
	return shuffled(all)
}

// shuffled returns a list in another order, always the same.
func shuffled[T any](list []T) []T {
	random.Keyed(5).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// shapes are the stages and microbatches of small steps.
var shapes = [][2]int{{2, 3}, {2, 6}, {3, 3}, {3, 5}, {3, 8}, {4, 4}, {4, 6}, {4, 8}, {5, 5}}

// smallKinds are the costs of small steps.
var smallKinds = []kind{
	kinds[0], kinds[2], kinds[4],
	{"integers", func(rnd *rand.Rand, _, _, _ int) cost.Stage {
		return cost.Stage{Forward: float64(rnd.IntN(5)), Input: float64(rnd.IntN(5)), Weight: float64(rnd.IntN(5))}
	}},
	{"extreme", func(rnd *rand.Rand, _, _, _ int) cost.Stage {
		from := []float64{0, 0.1, 1, 4}
		return cost.Stage{Forward: from[rnd.IntN(4)], Input: from[rnd.IntN(4)], Weight: from[rnd.IntN(4)]}
	}},
}

// small returns the n-th small step: kinds and shapes in turn, under a random cap of 2
// or more, or none, half of them without messages.
func small(n int, seed uint64) Problem {
	rnd := random.Keyed(uint64(n), 36+seed)
	kind, shape := smallKinds[n%len(smallKinds)], shapes[n/len(smallKinds)%len(shapes)]
	p := Problem{
		Name: fmt.Sprintf("%s %d", kind.name, n), Costs: make([]cost.Stage, shape[0]), Microbatches: shape[1],
		Message: []float64{0, 0, 0.1, 0.3}[rnd.IntN(4)],
	}
	if p.InFlight = 1 + rnd.IntN(shape[1]); p.InFlight == 1 {
		p.InFlight = 0
	}
	set := rnd.IntN(len(ratios))
	for s := range p.Costs {
		p.Costs[s] = kind.draw(rnd, set, s, shape[0])
	}
	return p
}
