package search

import (
	"math"

	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

const (
	// optimal times the lower bound is short enough: Auto stops there.
	optimal = 1 + 1e-4
	// listed bounds the instructions of one chunk in the lists of all rules together.
	listed = 3 << 14
	// searched/n√n bounds the orders that are searched for a step of n instructions. An
	// order of a longer step takes longer to try and changes less. mostOrders is enough
	// for small steps.
	searched, mostOrders = 1e7, 1000
	// fewest is the least number of rules and of orders that are tried.
	fewest = 4
)

// Kinds lists the kinds of schedules that `dynmo plan` tries for its advice. It leaves out "file", which
// needs a file, and "auto", which only chooses among others.
var Kinds = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved,
	schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV, schedule.KindZBInterleaved, schedule.KindList,
}

// rules are the list rules that Auto tries; on the largest steps it tries only the first ones.
// Without a cap on microbatches in flight the first rule is nearly always the best. The others were
// chosen greedily from all combinations of a few values. Each minimises the mean square distance
// between the best rule so far and the best of all combinations. The steps for this had equal to
// ragged stages, with messages and without. Their caps on microbatches in flight went from half the
// number of stages to twice that number.
var rules = []schedule.Rule{
	{},
	{Theta: 0.5, ForwardFirst: true, Patience: 0.5, Turns: true, Calm: true, Drain: true},
	{Theta: 0.75, ForwardFirst: true, Calm: true, Drain: true},
	{Theta: 0.25, Patience: 0.5, Turns: true, Drain: true},
	{Theta: 1, Calm: true, Drain: true},
	{Theta: 0.25, Patience: 2, Turns: true, Drain: true},
	{Theta: 0.75, Patience: 0.5, Turns: true, Calm: true, Drain: true},
	{Theta: 0.5, ForwardFirst: true, Calm: true, Drain: true},
	{Theta: 0.5, ForwardFirst: true, Patience: 1, Turns: true, Drain: true},
	{Patience: 0.5, Calm: true},
	{Theta: 0.5, Drain: true},
	{Theta: 0.75, Calm: true, Drain: true},
	{Theta: 1, Patience: 0.5, Turns: true, Drain: true},
	{Patience: 1, Calm: true},
	{Theta: 1, Patience: 0.5, Drain: true},
}

// chunkRules are the rules for several chunks on a stage, chosen in the same way on a V. The
// rules that take rounds are the best for few microbatches and short W.
var chunkRules = []schedule.Rule{
	{},
	{Rounds: true, Fill: true},
	{Theta: 0.5, ForwardFirst: true, Drain: true},
	{Theta: 0.75, Patience: 0.5, Turns: true},
	{Theta: 0.5, ForwardFirst: true},
	{Theta: 0.25, ForwardFirst: true, Patience: 0.5, Turns: true, Drain: true},
	{Rounds: true},
	{Theta: 0.75, ForwardFirst: true, Patience: 0.5},
	{Theta: 1, ForwardFirst: true, Drain: true},
	{Theta: 0.25, Patience: 0.5},
	{Theta: 1, Patience: 2, Drain: true},
	{Theta: 0.5, Patience: 2, Turns: true, Drain: true},
	{Theta: 0.25, ForwardFirst: true, Calm: true},
	{Theta: 0.25, Drain: true},
	{Patience: 2},
}

// fixedSchedules returns the schedules that follow from numbers alone and that Auto compares:
// those for the map that keep to the caps on microbatches in flight by stage. Nil means no caps.
func fixedSchedules(o schedule.ListOptions) (list []schedule.Schedule) {
	kinds := []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2}
	if o.Map.Chunks == 2 && o.Map.Vee {
		kinds = []schedule.Kind{schedule.KindZBV}
	} else if o.Map.Chunks > 1 {
		kinds = nil
	}
kinds:
	for _, kind := range kinds {
		s, err := schedule.New(kind, o.Map.Stages, o.Map.Chunks, o.Microbatches)
		if err != nil {
			panic("plan: " + err.Error()) // these kinds exist for all numbers
		}
		for stage, most := range o.InFlight {
			if s.Cap(stage) > most {
				continue kinds
			}
		}
		list = append(list, s)
	}
	return list
}

// Auto returns the fastest schedule that it finds for o, and its seconds. evaluate returns the seconds
// of a schedule. Of equally fast schedules Auto returns the one that it tried first. Auto sets o.Rule
// itself.
//
// Auto first tries the fixed schedules with at most o.InFlight microbatches in flight: gpipe, 1f1b,
// zb-h1 and zb-h2, or zb-v on a V. If none reaches the lower bound of o's costs, Auto makes a list
// schedule by each of several rules (schedule.Rule) and takes the fastest. If that is above the bound
// too, Auto changes the order of the best schedule so far by schedule.Search. No kind is best
// everywhere: a zero-bubble order may be slower than 1f1b if stages differ, and the rules of a list
// look one instruction ahead only.
func Auto(o schedule.ListOptions, evaluate func(schedule.Schedule) float64) (schedule.Schedule, float64) {
	if o.Map.Stages == 0 {
		o.Map = partition.Line(len(o.Costs))
	}
	var best schedule.Schedule
	least := math.Inf(1)
	try := func(s schedule.Schedule) {
		if seconds := evaluate(s); best.Lists == nil || seconds < least {
			best, least = s, seconds
		}
	}
	for _, s := range fixedSchedules(o) {
		try(s)
	}
	enough := optimal * max(o.Least(), sim.LowerBound(o.Map, o.Costs, o.Microbatches, o.InFlight))
	if least <= enough {
		return best, least
	}
	try(fastestList(o, enough))
	if least > enough {
		n := float64(3 * len(o.Costs) * o.Microbatches)
		orders := int(searched / (n * math.Sqrt(n)))
		if s, _ := schedule.Search(o, best, min(mostOrders, max(fewest, orders)), enough); s.Kind == schedule.KindList {
			try(s)
		}
	}
	return best, least
}

// fastestList returns the fastest list of all rules, if no message waits for another. Of
// equally fast lists it returns that of the first rule.
func fastestList(o schedule.ListOptions, enough float64) schedule.Schedule {
	l := schedule.NewLister(o)
	best, least := schedule.Rule{}, math.Inf(1)
	list := rules
	if o.Map.Chunks > 1 {
		list = chunkRules
	}
	for _, rule := range list[:min(len(list), max(fewest, listed/(3*o.Map.Stages*o.Microbatches)))] {
		if seconds := l.Run(rule); seconds < least {
			best, least = rule, seconds
		}
		if least <= enough {
			break
		}
	}
	l.Run(best)
	return l.Schedule()
}
