package policy

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// Balancer decides after a step where layers are in the next one, and in which
// order they are worked on.
type Balancer interface {
	// Decide returns the layout of the next step, and why. It is called once after
	// every step, with what the step showed and the layout that it was run in. Its
	// answer depends on gathered values only, so it is the same on every rank.
	Decide(m profile.Measurement, present layout.Layout) (next layout.Layout, why Reason, err error)
}

// Options are what a balancer needs besides its planner.
type Options struct {
	// Neighbours carries the messages of diffusion between ranks. Nil means that this
	// process diffuses for all stages.
	Neighbours Neighbours
	// Nodes is by rank of the launched world which node it is on; nil: all are on one.
	Nodes []int
	// Pack is by step, counted from the balancer's first, how many stages there are
	// from it on, whatever that costs (the paper's way).
	Pack map[int]int
}

// Neighbours is the link of one stage to its neighbours.
type Neighbours interface {
	balance.Link
	Stage() int // the stage of this rank
}

// diffuse balances by diffusion, among ranks or in memory.
func (b *balancer) diffuse(problem balance.Problem, present partition.Partition) (partition.Partition, balance.Descent, error) {
	s := b.planner.Config.Balance
	o := balance.DiffusionOptions{Gamma: s.Gamma, MaxRounds: s.MaxRounds}
	if n := b.Neighbours; n != nil {
		return balance.Diffuse(problem.Stage(present, n.Stage()), n, o)
	}
	r, d, err := balance.Diffusion(problem, present, o)
	return r.Cuts, d, err
}

// balancer is the one of the settings.
type balancer struct {
	Options
	memory
	planner  *search.Planner
	costs    cost.Estimate
	trigger  *balance.Trigger
	last     memo
	aside    sought        // see other
	searched sought        // see wide
	referred cost.Estimate // that the reference was computed on

	microbatches int // that the settings have
}

// memory is what a balancer knows of the steps so far, as checkpoints keep it.
type memory struct {
	Steps     int       `json:"steps"`
	Changed   bool      `json:"changed"` // the model changed before this step, or it is the first
	Fresh     bool      `json:"fresh"`   // changed, and did not before the step before: memory is touched that is new
	Settles   bool      `json:"settles"` // fresh was the step before
	Price     float64   `json:"price"`   // seconds that a decision took that moved layers, smoothed; 0: not measured
	Moved     bool      `json:"moved"`   // layers, after the step before
	Decided   bool      `json:"decided"` // after the step before
	Full      bool      `json:"full"`    // memory allows no cuts since the model changed last
	Probation probation `json:"probation"`
	Reference
	packing
}

// horizon is how many steps new cuts are expected to last: layers move only when it
// is worth it, so that cuts outlast many decisions.
const horizon = 100

// memo is what was found on some costs at a layout: as long as neither changes,
// so do the answers not.
type memo struct {
	Costs   cost.Estimate `json:"costs"`
	Layout  layout.Layout `json:"layout"`
	Present float64       `json:"present"`        // predicted seconds in the present layout; 0: not asked for
	Best    float64       `json:"best"`           // likewise at the best cuts
	Stay    *Reason       `json:"stay,omitempty"` // why the layout is the one that was decided for; nil if it is not
}

// NewBalancer returns the balancer of the planner's settings.
func New(p *search.Planner, o Options) (Balancer, error) {
	trigger, err := balance.NewTrigger(p.Config.Balance.Every)
	if err != nil {
		return nil, fmt.Errorf("balance.%w", err)
	}
	if o.Nodes == nil {
		o.Nodes = make([]int, p.Mesh.Size())
	}
	return &balancer{Options: o, planner: p, trigger: trigger, microbatches: p.Microbatches}, nil
}

func (b *balancer) Decide(m profile.Measurement, present layout.Layout) (layout.Layout, Reason, error) {
	if b.costs = m.Estimate; b.costs.Layers == nil {
		b.costs = cost.Certain(m.Table)
	}
	b.noteStep(m)
	b.Probation.recordStep(m)
	if !b.planner.Config.Balance.Moves() && !b.planner.Adapts() {
		return present, Reason{}, nil
	}
	p, err := b.planner.Match(present)
	if err != nil {
		return present, Reason{}, fmt.Errorf("balance: %w", err)
	}
	b.planner = p
	b.forgetStale(present)
	if err := b.observeReference(); err != nil {
		return present, Reason{}, fmt.Errorf("balance: %w", err)
	}
	next, why, err := b.packOrBalance(present)
	why.Reference = b.memory.Reference
	if full, ok := errors.AsType[*balance.MemoryError](err); ok {
		// Masks and indices can make a pruned layer larger than it was.
		if b.Full {
			return present, Reason{Reference: why.Reference}, nil
		}
		b.Full = true
		return present, Reason{Full: full, Reference: why.Reference}, nil
	}
	if err != nil {
		return present, Reason{}, fmt.Errorf("balance: %w", err)
	}
	if next.Stages() != present.Stages() {
		b.forgetStages()
	} else if !next.Cuts.Equal(present.Cuts) && !why.Undone {
		b.Probation.start(present, p.Makespan(b.costs.Table, present))
	}
	if why.Decided {
		// The next step will take as much longer than its median costs predict.
		why.Predicted *= m.Summary.Makespan() / b.presentSeconds()
		b.Decided = next.Stages() == present.Stages() // what packing takes, balancing does not
		b.Moved = b.Decided && !next.Equal(present)
	}
	return next, why, nil
}

// noteStep notes what the last decision took, and whether the model has just changed.
func (b *balancer) noteStep(m profile.Measurement) {
	b.Settles = b.Fresh
	b.Fresh = m.Changed && !b.Changed || b.Steps == 0
	b.Changed = m.Changed || b.Steps == 0
	b.Steps++
	if m.Changed {
		b.Full = false
	}
	if b.Decided {
		b.trigger.Balanced(m.Balancing)
		if b.Moved && b.Price > 0 {
			b.Price += (m.Balancing - b.Price) / 2
		} else if b.Moved {
			b.Price = m.Balancing
		}
	}
	b.Decided, b.Moved = false, false
}

// forgetStale forgets what was found if costs or layout are others than before.
func (b *balancer) forgetStale(present layout.Layout) {
	if l := &b.last; !l.Costs.Equal(b.costs) || !l.Layout.Equal(present) {
		*l = memo{Costs: b.costs, Layout: present}
	}
}

// packOrBalance packs the model or balances it, if it is time to. The planner is that of the
// present number of stages.
func (b *balancer) packOrBalance(present layout.Layout) (layout.Layout, Reason, error) {
	next, pack, err := b.considerPacking(present)
	if err != nil {
		return present, Reason{}, err
	}
	if stages := b.Pack[b.Steps]; stages > 0 {
		if next, err = b.packOnto(stages); err != nil {
			return present, Reason{}, err
		}
	}
	if next.Stages() != present.Stages() {
		why := Reason{Decided: true, Pack: pack}
		return next, why, b.predict(present, next, &why)
	}
	next, why, err := b.balance(present)
	why.Pack = pack
	return next, why, err
}

// balance moves layers between the present stages if it is time to.
func (b *balancer) balance(present layout.Layout) (layout.Layout, Reason, error) {
	fail := func(err error) (layout.Layout, Reason, error) { return present, Reason{}, err }
	back, worse := b.Probation.undo(b.planner, b.costs.Table, present)
	if due, err := b.isDue(present); err != nil || !due && !worse {
		return fail(err)
	}
	if b.last.Stay != nil && !worse {
		return present, *b.last.Stay, nil
	}
	problem := b.planner.Problem(b.costs.Table)
	optimum, err := balance.Partition(problem)
	if err != nil {
		return fail(err)
	}
	why := Reason{Decided: true, Optimum: optimum.Bottleneck}
	next := present
	switch {
	case worse:
		next, why.Undone = back, true
	case b.Probation.Rest > 0:
		why.Kept = b.Probation.reason()
	default:
		if next, err = b.bestMove(problem, present, &why); err != nil {
			return fail(err)
		}
	}
	if err := b.predict(present, next, &why); err != nil {
		return fail(err)
	}
	if next.Equal(present) && b.Probation.Rest == 0 {
		stay := why
		b.last.Stay = &stay
	}
	return next, why, nil
}

// predict adds to a reason what its decision is expected to come to.
func (b *balancer) predict(present, next layout.Layout, why *Reason) error {
	p, err := b.planner.Match(next)
	if err != nil {
		return err
	}
	costs := b.regroupCosts(p, b.costs.Table)
	problem := p.Problem(costs)
	if p != b.planner { // other stages, or another map
		optimum, err := balance.Partition(problem)
		if err != nil {
			return err
		}
		why.Optimum = optimum.Bottleneck
	}
	r, err := problem.Evaluate(next.Cuts)
	if err != nil {
		return err
	}
	why.Bottleneck, why.Predicted = r.Bottleneck, b.presentSeconds()
	if !next.Equal(present) || b.Probation.Rest > 0 {
		why.Predicted = p.Seconds(costs, next)
	}
	return nil
}

// bestMove returns the layout that is surely worth moving to, if there is one: the best on
// the costs as they were measured, or else the best if the ranks whose layers they
// are were disturbed.
func (b *balancer) bestMove(problem balance.Problem, present layout.Layout, why *Reason) (layout.Layout, error) {
	next, err := b.choose(problem, present, why)
	if err != nil {
		return present, err
	}
	if next, err = b.acceptIfWorth(present, next, why); err != nil || why.Kept != KeptUncertain || b.costs.Doubt == nil {
		return next, err
	}
	measured, stay := b.costs, *why
	b.costs = measured.Undisturbed()
	next, err = b.choose(b.planner.Problem(b.costs.Table), present, why)
	b.costs = measured
	if err == nil {
		next, err = b.acceptIfWorth(present, next, why)
	}
	if err == nil && next.Equal(present) {
		*why = stay
	}
	return next, err
}

// presentSeconds returns the makespan of a step in the present layout, simulated on the
// costs.
func (b *balancer) presentSeconds() float64 {
	if l := &b.last; l.Present == 0 {
		l.Present = b.planner.Seconds(b.costs.Table, l.Layout)
	}
	return b.last.Present
}

// isDue reports whether to balance after this step: when the settings say so, and
// after the second step of a run and of a changed model, whose first is slower.
func (b *balancer) isDue(present layout.Layout) (bool, error) {
	if !b.trigger.Auto() {
		return (b.trigger.Step(0, 0) || b.Settles) && b.costs.Known(), nil
	}
	if !b.costs.Known() || b.Fresh && !b.costs.Sure() {
		return false, nil
	}
	if l := &b.last; l.Best == 0 {
		best := present.Cuts
		if b.planner.Config.Balance.Moves() {
			r, err := balance.Partition(b.planner.Problem(b.costs.Table))
			if err != nil {
				return false, err
			}
			best = r.Cuts
		}
		l.Best = b.planner.Estimate(b.costs.Table, best)
		if wide, ok := b.bestOfThisMap(); ok {
			l.Best = min(l.Best, b.planner.Seconds(b.costs.Table, wide))
		}
		if other, ok := b.bestOfOtherMap(); ok {
			l.Best = min(l.Best, b.planner.Seconds(b.costs.Table, other))
		}
	}
	best := b.last.Best
	if b.last.Stay != nil {
		best = b.presentSeconds()
	}
	return b.trigger.Step(b.presentSeconds(), best), nil
}

// choose returns the layout that the settings' balancer takes. Diffusion may talk
// to the neighbours; partition is a pure function of the costs; static balancers
// leave layers where they are.
func (b *balancer) choose(problem balance.Problem, present layout.Layout, why *Reason) (layout.Layout, error) {
	p, cuts := b.planner, present.Cuts
	switch p.Config.Balance.Kind {
	case "diffusion":
		found, d, err := b.diffuse(problem, cuts)
		if err != nil {
			return present, err
		}
		cuts, why.Diffusion = p.FasterCuts(b.costs.Table, present.Cuts, found), &d
	case "partition":
		var err error
		if cuts, err = p.NextCuts(b.costs.Table, present.Cuts, horizon); err != nil {
			return present, err
		}
	}
	next := p.Layout(b.costs.Table, cuts)
	if other, ok := b.bestOfOtherMap(); ok {
		next = p.FasterLayout(b.costs.Table, next, other)
	}
	return next, nil
}
