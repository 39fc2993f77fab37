package policy

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/piece"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// Balancer decides after every step on which layout the next step runs.
type Balancer interface {
	// Decide returns the layout of the next step and the reason. Call it once after every step, in
	// order, on rank 0 only. m is the measurement of the step, and present the layout of the step.
	// With Options.Neighbours the other stages must be in Neighbours.Conclude meanwhile. The answer
	// depends only on the arguments and on earlier calls of the methods here. An error means that
	// the run cannot go on: present does not fit the settings, or a message failed.
	Decide(m profile.Measurement, present layout.Layout) (next layout.Layout, why plan.Reason, err error)
	// NoteRefusal records that the last decision was not carried out, because a rank had no memory
	// for it: layers are where they were. Call it before the next Decide. Layers then stay for 100
	// steps.
	NoteRefusal()
	// KnownReference returns a copy of the dense model's reference, nil if it is not known yet.
	KnownReference() *plan.Reference
	// SetReference sets the reference that an earlier start of the same run measured, perhaps on
	// another number of stages. Call it before the first Decide. The error says which number is
	// impossible.
	SetReference(d plan.Reference) error
}

// Options are what a balancer needs besides its planner.
type Options struct {
	// Neighbours lets the stages of replica 0 diffuse by messages. Nil: this process computes the
	// diffusion of all stages.
	Neighbours *Neighbours
	// Nodes is the number of the node of every rank with which the run was launched. Nil: all ranks
	// are on one node.
	Nodes []int
	// Pack[n] is the number of stages after the n-th call of Decide (from 1), as in the paper: no
	// check of throughput or load is made. Nil: only the settings decide.
	Pack map[int]int
	// Placing proposes which replicas should hold which pieces of layers. Nil: pieces do not move.
	Placing dynamic.Placing
}

// diffuse balances by diffusion, among ranks or in memory.
func (b *balancer) diffuse(problem balance.Problem, present partition.Partition) (partition.Partition, balance.Descent, error) {
	s := b.planner.Config.Balance
	o := balance.DiffusionOptions{Gamma: s.Gamma, MaxRounds: s.MaxRounds}
	if n := b.Neighbours; n != nil {
		return n.diffuse(problem, present, o)
	}
	r, d, err := balance.Diffusion(problem, present, o)
	return r.Cuts, d, err
}

// balancer is the Balancer of the settings.
type balancer struct {
	Options
	memory
	planner  *search.Planner
	costs    cost.Estimate
	trigger  *balance.Trigger
	last     memo
	aside    sought        // of the other map (see bestOfOtherMap)
	searched sought        // of this map (see bestOfThisMap)
	referred cost.Estimate // the costs that the reference was computed on

	microbatches int // of the settings; packing may change those of the planner
}

// memory is what a balancer knows of the steps so far. Checkpoints contain it.
type memory struct {
	Steps     int       `json:"steps"`
	Changed   bool      `json:"changed"` // the model changed before this step, or this step is the first
	Fresh     bool      `json:"fresh"`   // the model changed now, but not one step earlier: this step touches new memory
	Settles   bool      `json:"settles"` // Fresh was true one step earlier
	Price     float64   `json:"price"`   // smoothed seconds of a decision that moved layers; 0: not measured
	Moved     bool      `json:"moved"`   // layers moved after the previous step
	Decided   bool      `json:"decided"` // there was a decision after the previous step
	Full      bool      `json:"full"`    // no cuts have fitted the memory since the model last changed
	Probation probation `json:"probation"`
	plan.Reference
	packing
}

// horizon is how many steps new cuts are expected to last. Layers move only if the move pays,
// so that cuts outlast many decisions.
const horizon = 100

// memo keeps the answers for some costs and a layout until either changes.
type memo struct {
	Costs   cost.Estimate `json:"costs"`
	Layout  layout.Layout `json:"layout"`
	Present float64       `json:"present"`        // predicted seconds in the present layout; 0: not computed
	Best    float64       `json:"best"`           // predicted seconds at the best cuts; 0: not computed
	Stay    *plan.Reason  `json:"stay,omitempty"` // why the last decision was to stay; nil if there was none
}

// New returns the balancer that the planner's settings ask for: its kind (balance.kind), when it
// decides (balance.every) and when it packs (the table repack). An error names balance.every.
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

func (b *balancer) Decide(m profile.Measurement, present layout.Layout) (layout.Layout, plan.Reason, error) {
	pieces := present.Pieces
	present.Pieces = piece.Assignment{} // only place knows of pieces
	next, why, err := b.decide(m, present, &pieces)
	next.Pieces = pieces
	return next, why, err
}

// decide decides on a layout without pieces, and changes pieces.
func (b *balancer) decide(m profile.Measurement, present layout.Layout, pieces *piece.Assignment) (layout.Layout, plan.Reason, error) {
	if b.costs = m.Estimate; b.costs.Layers == nil {
		b.costs = cost.Estimate{Table: m.Table}
	}
	b.noteStep(m)
	b.Probation.recordStep(m)
	if !b.planner.Config.Balance.Moves() && !b.planner.Adapts() && b.Placing == nil {
		return present, plan.Reason{}, nil
	}
	p, err := b.planner.Match(present)
	if err != nil {
		return present, plan.Reason{}, fmt.Errorf("balance: %w", err)
	}
	b.planner = p
	b.forgetStale(present)
	if err := b.observeReference(); err != nil {
		return present, plan.Reason{}, fmt.Errorf("balance: %w", err)
	}
	placed := b.place(m, present, pieces)
	b.forgetStale(present)
	next, why, err := b.packOrBalance(present)
	why.Reference, why.Placed = b.Reference, placed
	if full, ok := errors.AsType[*balance.MemoryError](err); ok {
		// Masks and indices can make a pruned layer larger than a dense one.
		if b.Full {
			return present, plan.Reason{Reference: why.Reference}, nil
		}
		b.Full = true
		return present, plan.Reason{Full: full, Reference: why.Reference}, nil
	}
	if err != nil {
		return present, plan.Reason{}, fmt.Errorf("balance: %w", err)
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

// noteStep records the seconds of the last decision and whether the model has just changed.
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

// forgetStale drops the memo if costs or layout have changed.
func (b *balancer) forgetStale(present layout.Layout) {
	if l := &b.last; !l.Costs.Equal(b.costs) || !l.Layout.Equal(present) {
		*l = memo{Costs: b.costs, Layout: present}
	}
}

// packAsked is the kind of a packing that Options.Pack asks for, not the settings.
const packAsked = "asked"

// packOrBalance packs the model or balances it if either is due. b.planner is the planner of
// the present layout.
func (b *balancer) packOrBalance(present layout.Layout) (layout.Layout, plan.Reason, error) {
	next, pack, err := b.considerPacking(present)
	if err != nil {
		return present, plan.Reason{}, err
	}
	if stages := b.Pack[b.Steps]; stages > 0 {
		if next, err = b.packOnto(stages); err != nil {
			return present, plan.Reason{}, err
		}
		pack = &plan.Packing{Kind: packAsked, Stages: stages, Exact: next.Schedule.Microbatches == present.Schedule.Microbatches}
	}
	if next.Stages() != present.Stages() {
		why := plan.Reason{Decided: true, Pack: pack}
		return next, why, b.predict(present, next, &why)
	}
	next, why, err := b.balance(present)
	if pack == nil || pack.Kind != packAsked { // else it has as many stages already
		why.Pack = pack
	}
	return next, why, err
}

// balance moves layers between the present stages if a decision is due.
func (b *balancer) balance(present layout.Layout) (layout.Layout, plan.Reason, error) {
	fail := func(err error) (layout.Layout, plan.Reason, error) { return present, plan.Reason{}, err }
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
	why := plan.Reason{Decided: true, Optimum: optimum.Bottleneck}
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

// predict adds the predicted step and the bottleneck of a decision to its reason.
func (b *balancer) predict(present, next layout.Layout, why *plan.Reason) error {
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

// bestMove returns a layout that is surely worth the move, else the present layout. It tries
// the best layout for the measured costs. If that gain may be noise and some ranks may have
// been disturbed, it tries the best layout for the costs without the disturbance.
func (b *balancer) bestMove(problem balance.Problem, present layout.Layout, why *plan.Reason) (layout.Layout, error) {
	next, err := b.choose(problem, present, why)
	if err != nil {
		return present, err
	}
	if next, err = b.acceptIfWorth(present, next, why); err != nil || why.Kept != plan.KeptUncertain || b.costs.Doubt == nil {
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

// presentSeconds returns the predicted seconds of a step in the present layout.
func (b *balancer) presentSeconds() float64 {
	if l := &b.last; l.Present == 0 {
		l.Present = b.planner.Seconds(b.costs.Table, l.Layout)
	}
	return b.last.Present
}

// isDue reports whether to balance after this step. The settings say when. With a fixed
// interval it is also due after the second step of a run and of a changed model: the first
// step is slower.
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

// choose returns the layout that the balancer of the settings prefers. Diffusion may exchange
// messages with neighbours. A partition is a pure function of the costs. Static balancers
// keep the cuts.
func (b *balancer) choose(problem balance.Problem, present layout.Layout, why *plan.Reason) (layout.Layout, error) {
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
