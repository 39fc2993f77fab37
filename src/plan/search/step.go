package search

import (
	"math"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Step is a step of a Problem: the costs of its layers and the layout in which it runs. In: the
// problem, which must have the stages and microbatches of the layout (see Problem.Match), the costs and
// the layout. A zero layout means that there is none yet: layers then lie on the first ranks of the
// launched world, in the map of the settings. Out: layouts for the next step, and predictions of the
// step in any layout on the same ranks.
//
// All answers are pure functions of these three values and of arguments, and nothing changes the
// values. So each answer in cache is right as long as the Step exists, and for other costs or another
// present layout there is another Step (see Move). A Step is for one goroutine.
type Step struct {
	*Problem
	Costs   cost.Table
	Present layout.Layout
	Map     partition.Map // of the present layout; of the settings if there is none
	here    *form         // of Map
	cache   cache
}

// cache has the answers for which one decision asks several times.
type cache struct {
	layouts []layout.Layout  // Layout, of different cuts
	cutting *balance.Problem // CutProblem; nil: not computed
	present float64          // PresentSeconds; 0: not computed
	rounds  *sim.Rounds      // rounds; nil: not computed
	known   *predictions     // of the costs; nil: there are none
}

// Step returns a step of the problem. It keeps costs and present, so the caller must not change their
// slices.
func (p *Problem) Step(costs cost.Table, present layout.Layout) *Step {
	f := p.form(present.Map().Virtual())
	return &Step{Problem: p, Costs: costs, Present: present, Map: f.Map, here: f}
}

// Move returns the step of the same costs in another layout of as many stages and microbatches. What
// Layout has found is kept if both layouts are on the same ranks: it depends on costs and ranks only.
func (s *Step) Move(next layout.Layout) *Step {
	moved := s.Step(s.Costs, next)
	if slices.Equal(s.Present.Ranks, next.Ranks) && s.Present.Pieces.Equal(next.Pieces) {
		moved.cache.layouts, moved.cache.known = slices.Clip(s.cache.layouts), s.cache.known
	}
	return moved
}

// Resize returns the step of the same sequences on other numbers of stages and of microbatches, before
// it has a layout. For the present numbers it is s. The error says which number is not possible.
func (s *Step) Resize(stages, microbatches int) (*Step, error) {
	p, err := s.Problem.Resize(stages, microbatches)
	if err != nil || p == s.Problem {
		return s, err
	}
	return p.Step(s.Costs.Regroup(s.Microbatches, p.Microbatches), layout.Layout{}), nil
}

// Layout returns the layout of some cuts with the base schedule, or if Adapts with the fastest of several
// schedules that fits the memory. Where model.recompute is "plan" it also says which layers recompute.
func (s *Step) Layout(cuts partition.Partition) layout.Layout {
	for _, l := range s.cache.layouts {
		if l.Cuts.Equal(cuts) {
			return l
		}
	}
	l := s.baseLayout(slices.Clone(cuts))
	if s.Adapts() {
		l.Schedule = s.fastestSchedule(l)
	}
	l = s.complete(l)
	s.cache.layouts = append(s.cache.layouts, l)
	return l
}

// layout returns the layout of some cuts and a schedule on the present ranks, without the choice
// of layers that compute their forward twice.
func (s *Step) layout(cuts partition.Partition, order schedule.Schedule) layout.Layout {
	l := layout.New(cuts, order, s.Mesh.Replicas, s.Mesh.Order)
	l.Ranks, l.Pieces = s.Present.Ranks, s.Present.Pieces
	return l
}

// baseLayout returns layout of cuts in the base schedule.
func (s *Step) baseLayout(cuts partition.Partition) layout.Layout {
	return s.layout(cuts, s.form(cuts.Stages()).base)
}

// fastestSchedule returns the fastest schedule that is found at the cuts of a layout in the base
// schedule.
func (s *Step) fastestSchedule(base layout.Layout) schedule.Schedule {
	evaluate := func(order schedule.Schedule) float64 {
		l := s.layout(base.Cuts, order)
		if s.Kind == schedule.KindList && order.Kind != schedule.KindList ||
			s.limit > 0 && (l.Map().Chunks > 1 || s.twice != nil) && !s.Fits(l) {
			return math.Inf(1)
		}
		return s.Seconds(l)
	}
	found, seconds := Auto(s.listOptions(base), evaluate)
	// Lists are kept to a cap that holds whatever they do; the base is known to fit.
	if math.IsInf(seconds, 1) || evaluate(base.Schedule) < seconds {
		return base.Schedule
	}
	if s.Kind == schedule.KindZBV {
		found.Kind = s.Kind
	}
	return found
}

// listOptions returns what a list schedule at the cuts of a layout is made for.
func (s *Step) listOptions(l layout.Layout) schedule.ListOptions {
	return s.options(s.simulation(l), s.caps(s.Costs, l))
}

// options returns what a list schedule of a simulated step is made for.
func (s *Step) options(step sim.Step, caps []int) schedule.ListOptions {
	m := step.Schedule.Map
	o := schedule.ListOptions{Map: m, Costs: step.Costs, Dispatch: step.Dispatch, Microbatches: s.Microbatches, InFlight: caps}
	if s.limit > 0 && caps != nil && m.Chunks == 2 {
		o.OfChunk = capsByChunk(m, caps, s.Microbatches)
	}
	for v := range len(step.Costs) - 1 {
		if step.Bytes != nil {
			o.Message = append(o.Message, s.link(m.Stage(v), m.Stage(v+1)).Seconds(step.Bytes[v]))
		}
	}
	return o
}

// capsByChunk divides the microbatches that may be in flight on each stage of a V between
// the stage's two chunks. Each chunk holds memory for the most microbatches that it ever
// has in flight, so that a common cap would not bound the memory. The shares are those of
// 1F1B over the virtual stages: a later chunk waits less for its gradient.
func capsByChunk(m partition.Map, caps []int, microbatches int) []int {
	n := m.Virtual()
	list := make([]int, n)
	for stage, limit := range caps {
		first, second := m.Place(stage, 0), m.Place(stage, 1)
		share := float64(n-second) / float64(n-first+n-second)
		list[second] = min(max(1, int(math.Round(share*float64(limit)))), microbatches)
		list[first] = min(limit-list[second], microbatches)
		list[second] = min(limit-list[first], microbatches)
	}
	return list
}

// link returns the link between two stages.
func (s *Step) link(from, to int) sim.Link {
	return s.Network.Link(s.Present.World(s.Mesh.Rank(from, 0)), s.Present.World(s.Mesh.Rank(to, 0)))
}

// rounds returns the rounds of gradient sums on the present ranks.
func (s *Step) rounds() *sim.Rounds {
	if s.Present.Ranks == nil {
		return s.Problem.rounds
	}
	if s.cache.rounds == nil {
		s.cache.rounds = sim.NewRounds(s.Network, s.Mesh, s.Present.Ranks, s.sums)
	}
	return s.cache.rounds
}

// slowdown returns how many times slower than the costs the slowest replica of a stage is.
func (s *Step) slowdown(stage int) float64 {
	if s.Network.Slow == nil {
		return 1
	}
	factor := 1.0
	for d := range s.Mesh.Replicas {
		factor = max(factor, s.Network.Slowness(s.Present.World(s.Mesh.Rank(stage, d))))
	}
	return factor
}

// simulation returns the input for a simulation of the step in a layout (see sim.Run). One replica
// stands for all: each stage is as slow as the slowest replica's. Microbatches differ as Costs.Scale
// says; without Costs.Scale all microbatches are the mean one.
func (s *Step) simulation(l layout.Layout) sim.Step {
	if l.Map() != s.Map {
		l.Twice = nil // l.Twice counts in the present map only; in another map the costs choose which layers recompute
	}
	chosen, _ := s.chosen(l, l.Schedule.Peaks)
	t := s.effective(s.Costs, chosen)
	step := sim.Step{
		Schedule: l.Schedule, Costs: s.stageCosts(t, l.Cuts), Bytes: Messages(t, l.Cuts), Network: s.Network, Dispatch: t.Dispatch,
		Mesh: s.Mesh, Ranks: s.Present.Ranks, Rounds: s.rounds(),
	}
	step.PerMicrobatch = cost.Phase{Table: s.exchanging(t)}.PerMicrobatch(l.Cuts, l.Map(), l.Schedule.Microbatches)
	for v, row := range step.PerMicrobatch {
		slowdown := s.slowdown(l.Map().Stage(v))
		for m := range row {
			row[m] = row[m].Scale(slowdown)
		}
	}
	step.Network.Slow = nil
	return step
}

// Seconds predicts the seconds of the step in a layout, from the first forward to the end of the sums
// of gradients over replicas. Cuts and schedules are compared by Seconds.
func (s *Step) Seconds(l layout.Layout) float64 {
	key, isKept := s.key(l)
	if !isKept || s.Present.Ranks != nil {
		return s.predict(l)
	}
	known := s.known().seconds
	if _, ok := known[key]; !ok {
		known[key] = s.predict(l)
	}
	return known[key]
}

// predict is Seconds of a layout for which no prediction is kept.
func (s *Step) predict(l layout.Layout) float64 {
	if s.Mesh.Replicas <= 1 {
		return s.Makespan(l)
	}
	r := sim.Replicas(s.simulation(l), l.Cuts, s.Costs.Layers)
	return r.Seconds - r.Replicas[0].Start
}

// known returns the predictions for the costs: those of the Memo or, without, of the step alone.
func (s *Step) known() *predictions {
	if s.cache.known == nil && s.Memo != nil {
		s.cache.known = s.Memo.find(s.Costs)
	} else if s.cache.known == nil {
		s.cache.known = newPredictions(s.Costs)
	}
	return s.cache.known
}

// PresentSeconds returns Seconds of the present layout.
func (s *Step) PresentSeconds() float64 {
	if s.cache.present == 0 {
		s.cache.present = s.Seconds(s.Present)
	}
	return s.cache.present
}

// Makespan predicts the seconds of the step in a layout, from the first forward to the last backward.
func (s *Step) Makespan(l layout.Layout) float64 {
	return sim.Run(s.simulation(l)).Makespan()
}

// Estimate predicts what Seconds says of the layout of some cuts, with less work. If Adapts it uses the
// list schedule of one rule, without gradient sums. Otherwise it is Seconds with the base schedule.
func (s *Step) Estimate(cuts partition.Partition) float64 {
	l := s.baseLayout(cuts)
	if !s.Adapts() {
		return s.Seconds(l)
	}
	return schedule.NewLister(s.listOptions(l)).Run(schedule.Rule{})
}
