package decisions

import (
	"math"
	"slices"
)

// Figure is one number, of the old policy and of the present one.
type Figure struct {
	Kind     Kind
	Noise    string
	Balancer string
	Family   string // the one it is the worst of, or the only one; "" is all together
	Old, New float64
	Reach    float64 // 0: nothing to be reached
}

// Kind is what a figure says.
type Kind struct {
	Name, Unit string
	Clock      string // sim or wall
	AtLeast    bool   // the reach is a least value, not a largest
}

// Kinds of figures.
var (
	RegretP95    = Kind{Name: "regret_p95", Unit: "ratio", Clock: "sim"}           // see Verdict
	LargestP95   = Kind{Name: "bottleneck_p95", Unit: "ratio", Clock: "sim"}       // over the smallest
	Needless     = Kind{Name: "needless", Unit: "moves", Clock: "sim"}             // in 100 decisions
	Clean        = Kind{Name: "clean", Unit: "ratio", Clock: "sim", AtLeast: true} // share of runs without needless moves
	Moves        = Kind{Name: "moves", Unit: "moves", Clock: "sim"}                // in 100 decisions
	ChangeMedian = Kind{Name: "change_median", Unit: "decisions", Clock: "sim"}    // until a change is answered
	ChangeP95    = Kind{Name: "change_p95", Unit: "decisions", Clock: "sim"}
	SlowMedian   = Kind{Name: "slow_median", Unit: "decisions", Clock: "sim"} // until a slow rank is answered
	SlowP95      = Kind{Name: "slow_p95", Unit: "decisions", Clock: "sim"}
	Seconds      = Kind{Name: "seconds", Unit: "ms", Clock: "wall"}
	SecondsRatio = Kind{Name: "seconds_ratio", Unit: "ratio", Clock: "wall"}
)

const (
	// mostNeedless is how many needless moves there may be in 100 decisions.
	mostNeedless = 0.01
	// mostMedian and mostP95 are in how many decisions a change should be answered.
	mostMedian, mostP95 = 2, 4
)

// OK reports whether the present policy reaches what it should.
func (f Figure) OK() bool {
	switch {
	case f.Reach == 0:
		return true
	case f.Kind.AtLeast:
		return f.New >= f.Reach
	}
	return f.New <= f.Reach
}

// Figures sums up runs: for each noise and balancer what they show.
func Figures(runs []Run) []Figure {
	var list []Figure
	for _, noise := range Noises {
		for _, balancer := range Balancers {
			list = append(list, constant(runs, noise, balancer)...)
		}
	}
	for _, scenario := range []Scenario{Changes, SlowRank} {
		for _, noise := range Noises {
			for _, balancer := range Balancers {
				list = append(list, answers(runs, noise, balancer, scenario)...)
			}
		}
	}
	return list
}

// group is what runs are chosen by; "" is any.
type group struct {
	noise, balancer, policy, family string
	scenario                        Scenario
}

// of returns the verdicts of the group's runs.
func (g group) of(runs []Run) []Verdict {
	var list []Verdict
	for _, r := range runs {
		if r.Noise.Name == g.noise && r.Scenario == g.scenario && r.Balancer == g.balancer && r.Policy == g.policy && (g.family == "" || r.Family == g.family) {
			list = append(list, r.Verdict)
		}
	}
	return list
}

// both returns a figure of both policies' runs of a group.
func (g group) both(runs []Run, kind Kind, reach float64, of func([]Verdict) float64) Figure {
	f := Figure{Kind: kind, Noise: g.noise, Balancer: g.balancer, Family: g.family, Reach: reach}
	g.policy = Policies[0].Name
	f.Old = of(g.of(runs))
	g.policy = Policies[1].Name
	f.New = of(g.of(runs))
	return f
}

// constant returns the figures of runs at constant truth, none if there are no such
// runs.
func constant(runs []Run, noise Noise, balancer string) []Figure {
	g := group{noise: noise.Name, balancer: balancer, scenario: Constant}
	if g.policy = present.Name; len(g.of(runs)) == 0 {
		return nil
	}
	reach := func(g group) float64 { return g.reach(runs, noise) }
	needless := mostNeedless
	if noise.Clean == 0 {
		needless = 0
	}
	return []Figure{
		g.worst(runs, RegretP95, reach, regret), g.worst(runs, LargestP95, func(group) float64 { return 0 }, largest),
		g.both(runs, Needless, needless, per100(func(v Verdict) int { return v.Needless })),
		g.both(runs, Clean, noise.Clean, clean), g.both(runs, Moves, 0, per100(func(v Verdict) int { return v.Moves })),
	}
}

// worst returns the figure of the family that is furthest from its reach under the
// present policy; the old one's value is the largest of all families.
func (g group) worst(runs []Run, kind Kind, reach func(group) float64, of func([]Verdict) float64) Figure {
	var worst Figure
	for _, g.family = range Families() {
		f, old := g.both(runs, kind, reach(g), of), worst.Old
		if f.New/max(f.Reach, 1) > worst.New/max(worst.Reach, 1) {
			worst = f
		}
		worst.Old = max(f.Old, old)
	}
	return worst
}

// reach returns what a family's regret should not exceed, 0 if that is not known.
// Of the cuts with the smallest bottleneck diffusion takes even ones, not those of the
// fastest step: its regret under a noise is compared with the one that it has without any.
func (g group) reach(runs []Run, noise Noise) float64 {
	if g.balancer != diffusion {
		return noise.Regret
	}
	g.noise, g.policy = Noises[0].Name, present.Name
	if noise.Name == g.noise {
		return 0
	}
	return noise.Regret * regret(g.of(runs))
}

// answers returns the figures of runs in which something changes, none if there are
// no such runs.
func answers(runs []Run, noise Noise, balancer string, s Scenario) []Figure {
	g := group{noise: noise.Name, balancer: balancer, scenario: s}
	kinds, median, p95 := [2]Kind{ChangeMedian, ChangeP95}, float64(mostMedian), float64(mostP95)
	if s == SlowRank {
		kinds, median, p95 = [2]Kind{SlowMedian, SlowP95}, 0, 0
	}
	if g.policy = present.Name; len(g.of(runs)) == 0 {
		return nil
	}
	return []Figure{
		g.both(runs, kinds[0], median, func(list []Verdict) float64 { return quantile(decisions(list), 0.5) }),
		g.both(runs, kinds[1], p95, func(list []Verdict) float64 { return quantile(decisions(list), 0.95) }),
	}
}

// regret returns the 95th percentile of the regret of all decisions.
func regret(list []Verdict) float64 {
	return worstDecision(list, func(v Verdict) []float64 { return v.Regret })
}

// largest returns the same of the bottleneck.
func largest(list []Verdict) float64 {
	return worstDecision(list, func(v Verdict) []float64 { return v.Bottleneck })
}

// worstDecision returns the 95th percentile of a value over all decisions.
func worstDecision(list []Verdict, of func(Verdict) []float64) float64 {
	var all []float64
	for _, v := range list {
		all = append(all, of(v)...)
	}
	return quantile(all, 0.95)
}

// per100 returns what counts something in 100 decisions.
func per100(count func(Verdict) int) func([]Verdict) float64 {
	return func(list []Verdict) float64 {
		n, of := 0, 0
		for _, v := range list {
			n, of = n+count(v), of+len(v.Regret)
		}
		return 100 * float64(n) / float64(max(1, of))
	}
}

// clean returns the share of runs without a needless move.
func clean(list []Verdict) float64 {
	n := 0
	for _, v := range list {
		if v.Needless == 0 {
			n++
		}
	}
	return float64(n) / float64(max(1, len(list)))
}

// decisions returns how many each change took.
func decisions(list []Verdict) []float64 {
	var all []float64
	for _, v := range list {
		for _, n := range v.Answers {
			all = append(all, float64(n))
		}
	}
	return all
}

// quantile returns the least value that a share of all does not exceed, 0 if there
// are none.
func quantile(list []float64, share float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[max(0, int(math.Ceil(share*float64(len(list))))-1)]
}
