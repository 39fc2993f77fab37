package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
)

// Plan plans a step on costs: at the cuts of a balancer that never moves layers,
// else at the best ones. A balancer that never moves layers cuts the chain before
// any pruning, as a run does before its first step. Errors are the settings'.
func Plan(t cost.Table, o Options) (search.Plan, error) {
	p, err := o.problem()
	if err != nil {
		return search.Plan{}, err
	}
	phase := cost.Phase{Table: t}
	var best layout.Layout
	if o.Config.Balance.Moves() {
		best, err = p.Step(t, layout.Layout{}).BestLayout()
	} else if best, err = p.Step(search.Dense(o.Config), layout.Layout{}).FirstLayout(); err == nil {
		best = p.Step(phase.Mean(), layout.Layout{}).Layout(best.Cuts)
	}
	if err != nil {
		return search.Plan{}, err
	}
	return p.Simulate(phase, best, 0)
}

// Advice is other settings, and what a step would be with them.
type Advice struct {
	Config  config.Config `json:"-"`
	Sets    []string      `json:"set"`          // what differs from the settings at hand, each table.key=value as --set takes it
	Without []string      `json:"without"`      // settings of a command line that must be dropped, because they have no effect beside these; left to the caller
	Step    float64       `json:"step_seconds"` // with the gradient sum over replicas
	Bytes   int64         `json:"bytes"`        // of the stage that needs most
	Faster  float64       `json:"faster"`       // share of the step at hand that is saved; below 0 if it takes longer
	Less    float64       `json:"less_memory"`  // share of those bytes that is saved; below 0 if it needs more
	MadeUp  bool          `json:"estimated"`    // the costs are those of finer
}

const (
	// sameStep is the share of a step by which two are told apart: costs are not known
	// better.
	sameStep = 0.005
	// worthSeconds and worthBytes are the shares of time and memory from which on
	// other settings are worth a word.
	worthSeconds, worthBytes = 0.01, 0.05
	// dearest is how many times as long a step may become for less memory.
	dearest = 1.5
)

// Trial is a step under other settings.
type Trial struct {
	Config config.Config
	search.Plan
}

// Trials plans a step in every kind of schedule, with the balancer at hand and, where
// that never moves layers, at exact cuts too. Trials that memory does not allow are
// left out. show is told how many of how many are done.
func Trials(t cost.Table, o Options, show func(done, total int64)) []Trial {
	return try(t, settings(o, search.Kinds), func(done, all int) { show(int64(done), int64(all)) })
}

// Advise returns settings that are better than those of o in time or memory.
//
// It first tries schedule.kind = auto, blocks in halves and slices of the head, alone and together.
// Finer makes up the costs of the finer layers. Advise returns those of these settings that are
// faster than o. Other schedules and balancers follow; tried has those that were tried already. In
// each of the two groups no settings are worse than others of the group in both time and memory.
// The fastest of each group comes first, but settings with made-up costs come last. present is the Plan of o. show receives the number of
// trials done, and of all trials.
func Advise(t cost.Table, o Options, present search.Plan, tried []Trial, show func(done, total int64)) []Advice {
	have := Advice{Config: o.Config, Step: present.Seconds, Bytes: slices.Max(present.Bytes)}
	kinds := []schedule.Kind{schedule.KindAuto}
	if own := schedule.Kind(o.Config.Schedule.Kind); own != schedule.KindAuto {
		kinds = append(kinds, own)
	}
	first, others := []Advice{have}, []Advice{have}
	chains := costedChains(t, o.Config)
	ways, before, total := make([][]Options, len(chains)), 0, 0
	for i, c := range chains {
		next := o
		next.Config, next.Fixed = c.config, search.Fixed(c.config)
		ways[i] = settings(next, kinds)
		total += len(ways[i])
	}
	for i, c := range chains {
		trials := try(c.costs, ways[i], func(done, _ int) { show(int64(before+done), int64(total)) })
		before += len(ways[i])
		for _, trial := range trials {
			a := have.compared(trial)
			if first = append(first, a); !a.MadeUp {
				others = append(others, a)
			}
		}
	}
	for _, trial := range tried {
		others = append(others, have.compared(trial))
	}
	first = slices.DeleteFunc(front(first), func(a Advice) bool { return a.Faster < worthSeconds })
	others = slices.DeleteFunc(front(others), func(a Advice) bool {
		return slices.ContainsFunc(first, func(b Advice) bool { return slices.Equal(a.Sets, b.Sets) })
	})
	list := slices.DeleteFunc(append(first, others...), func(a Advice) bool {
		return len(a.Sets) == 0 || a.Step > dearest*have.Step || a.Faster < worthSeconds && a.Less < worthBytes
	})
	slices.SortStableFunc(list, func(a, b Advice) int {
		switch {
		case a.MadeUp == b.MadeUp:
			return 0
		case a.MadeUp:
			return 1
		}
		return -1
	})
	return list
}

// try plans a step under each of some settings, as far as memory allows.
func try(t cost.Table, all []Options, show func(done, all int)) []Trial {
	var list []Trial
	for i, o := range all {
		if p, err := Plan(t, o); err == nil {
			list = append(list, Trial{o.Config, p})
		}
		show(i+1, len(all))
	}
	return list
}

// settings returns the options of kinds of schedules, with the balancer at hand and,
// where that never moves layers, with exact cuts. Kinds that hold several chunks on
// a stage go without diffusion, which knows one. Settings that no run can have
// are left out.
func settings(o Options, kinds []schedule.Kind) []Options {
	balancers := []string{o.Config.Balance.Kind}
	if !o.Config.Balance.Moves() {
		balancers = append(balancers, "partition")
	}
	var list []Options
	for _, balancer := range balancers {
		for _, kind := range kinds {
			next := o
			next.Config.Balance.Kind, next.Config.Schedule.Kind = balancer, string(kind)
			if balancer == "diffusion" && next.Config.Schedule.Virtual() > 1 {
				next.Config.Balance.Kind = "partition"
			}
			if next.Config.Validate() == nil {
				list = append(list, next)
			}
		}
	}
	return list
}

// mostShards bounds the slices of the head that finerChains tries.
const mostShards = 64

// finerChains returns settings with layers that are cut finer: blocks in halves, a
// head that costs more than other layers in slices that cost about as much, and
// both.
func finerChains(t cost.Table, c config.Config) []config.Config {
	list := []config.Config{c}
	add := func(c config.Config) {
		if !slices.ContainsFunc(list, func(other config.Config) bool { return other.Model == c.Model }) {
			list = append(list, c)
		}
	}
	seconds := t.Seconds()
	head := len(seconds) - c.Model.HeadShards
	sliced := func(c config.Config, layer float64) config.Config {
		for slice := seconds[head]; slice > 1.5*layer && c.Model.HeadShards < mostShards; slice /= 2 {
			c.Model.HeadShards *= 2
		}
		return c
	}
	layer := mean(seconds[1:head])
	add(sliced(c, layer))
	if c.Model.Grain == "block" {
		c.Model.Grain = "half"
		add(c)
		add(sliced(c, layer/2))
	}
	return list[1:]
}

// costedChain is the settings and costs of a chain of layers.
type costedChain struct {
	config config.Config
	costs  cost.Table
}

// costedChains returns the chain of some settings, and those of finerChains on the costs of finer.
// The last has the most layers.
func costedChains(t cost.Table, c config.Config) []costedChain {
	list := []costedChain{{c, t}}
	for _, next := range finerChains(t, c) {
		list = append(list, costedChain{next, finer(t, c, next)})
	}
	return list
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// compared returns a trial beside the settings at hand.
func (have Advice) compared(t Trial) Advice {
	c := t.Config
	a := Advice{Config: c, Step: t.Seconds, Bytes: slices.Max(t.Bytes), MadeUp: c.Model != have.Config.Model}
	a.Faster = 1 - a.Step/have.Step
	if have.Bytes > 0 {
		a.Less = 1 - float64(a.Bytes)/float64(have.Bytes)
	}
	for _, s := range []struct{ key, from, to string }{
		{"model.grain", have.Config.Model.Grain, c.Model.Grain},
		{"model.head_shards", fmt.Sprint(have.Config.Model.HeadShards), fmt.Sprint(c.Model.HeadShards)},
		{"balance.kind", have.Config.Balance.Kind, c.Balance.Kind},
		{"schedule.kind", have.Config.Schedule.Kind, c.Schedule.Kind},
	} {
		if s.from != s.to {
			a.Sets = append(a.Sets, s.key+"="+s.to)
		}
	}
	return a
}

// front returns the advice that no other advice beats: another is never better in time or memory
// without being worse in the other. The fastest comes first. Of equals it takes the one with the
// fewest changes. Costs that are made up have to gain worthSeconds.
func front(list []Advice) []Advice {
	steps := func(a Advice) float64 {
		step := a.Step
		if a.MadeUp {
			step /= 1 - worthSeconds
		}
		return math.Round(math.Log(step) / sameStep)
	}
	sorted := slices.SortedStableFunc(slices.Values(list), func(a, b Advice) int {
		return cmp.Or(cmp.Compare(steps(a), steps(b)), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(len(a.Sets), len(b.Sets)))
	})
	var best []Advice
	for _, a := range sorted {
		if n := len(best); n == 0 || a.Bytes < best[n-1].Bytes {
			best = append(best, a)
		}
	}
	return best
}
