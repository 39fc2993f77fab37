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

// Options are what a balancer needs besides its problem.
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

// balancer is the Balancer of the settings.
type balancer struct {
	Options
	memory
	problem  *search.Problem // for the stages and microbatches of the last step
	now      *situation      // nil: not known yet
	trigger  *balance.Trigger
	aside    sought        // of the other map (see bestOfOtherMap)
	searched sought        // of this map (see bestOfThisMap)
	referred cost.Estimate // the costs that the reference was computed on

	microbatches int // of the settings; packing may change those of the problem
}

// situation is the costs and the layout of the last step, and what was decided on them. It lasts
// until either changes.
type situation struct {
	*search.Step
	costs cost.Estimate // Step has its table
	best  float64       // predicted seconds at the best cuts; 0: not computed
	stay  *plan.Reason  // why the last decision was to stay; nil if there was none
}

// face makes the situation that of some costs and a layout.
func (b *balancer) face(costs cost.Estimate, present layout.Layout) {
	s := b.problem.Step(costs.Table, present)
	if n := b.now; n != nil && n.costs.Equal(costs) {
		if n.Present.Equal(present) {
			return
		}
		if n.Problem == b.problem {
			s = n.Move(present)
		}
	}
	b.now = &situation{Step: s, costs: costs}
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

// New returns the balancer that the problem's settings ask for: its kind (balance.kind), when it
// decides (balance.every) and when it packs (the table repack). An error names balance.every.
func New(p *search.Problem, o Options) (Balancer, error) {
	trigger, err := balance.NewTrigger(p.Config.Balance.Every)
	if err != nil {
		return nil, fmt.Errorf("balance.%w", err)
	}
	if o.Nodes == nil {
		o.Nodes = make([]int, p.Mesh.Size())
	}
	return &balancer{Options: o, problem: p, trigger: trigger, microbatches: p.Microbatches}, nil
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
	costs := m.Estimate
	if costs.Layers == nil {
		costs = cost.Estimate{Table: m.Table}
	}
	b.noteStep(m)
	b.Probation.recordStep(m)
	if !b.problem.Config.Balance.Moves() && !b.problem.Adapts() && b.Placing == nil {
		return present, plan.Reason{}, nil
	}
	p, err := b.problem.Match(present)
	if err != nil {
		return present, plan.Reason{}, fmt.Errorf("balance: %w", err)
	}
	b.problem = p
	b.face(costs, present)
	if err := b.observeReference(); err != nil {
		return present, plan.Reason{}, fmt.Errorf("balance: %w", err)
	}
	placed := b.place(m, pieces)
	next, why, err := b.packOrBalance()
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
		b.Probation.start(present, b.now.Makespan(present))
	}
	if why.Decided {
		// The next step will take as much longer than its median costs predict.
		why.Predicted *= m.Summary.Makespan() / b.now.PresentSeconds()
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

// packAsked is the kind of a packing that Options.Pack asks for, not the settings.
const packAsked = "asked"

// packOrBalance packs the model or balances it if either is due.
func (b *balancer) packOrBalance() (layout.Layout, plan.Reason, error) {
	present := b.now.Present
	next, pack, err := b.considerPacking()
	if stages := b.Pack[b.Steps]; err == nil && stages > 0 {
		if next, err = b.packOnto(stages); err == nil {
			pack = &plan.Packing{Kind: packAsked, Stages: stages, Exact: next.Schedule.Microbatches == present.Schedule.Microbatches}
		}
	}
	if err != nil {
		return present, plan.Reason{}, err
	}
	if next.Stages() != present.Stages() {
		why := plan.Reason{Decided: true, Pack: pack}
		return next, why, b.predict(next, &why)
	}
	next, why, err := b.balance()
	if pack == nil || pack.Kind != packAsked { // else it has as many stages already
		why.Pack = pack
	}
	return next, why, err
}

// balance moves layers between the present stages if a decision is due.
func (b *balancer) balance() (next layout.Layout, why plan.Reason, err error) {
	present := b.now.Present
	back, worse := b.Probation.undo(b.now.Step)
	if due, err := b.isDue(); err != nil || !due && !worse {
		return present, why, err
	}
	if b.now.stay != nil && !worse {
		return present, *b.now.stay, nil
	}
	optimum, err := balance.Partition(b.now.CutProblem())
	if err != nil {
		return present, why, err
	}
	why = plan.Reason{Decided: true, Optimum: optimum.Bottleneck}
	switch next = present; {
	case worse:
		next, why.Undone = back, true
	case b.Probation.Rest > 0:
		why.Kept = b.Probation.reason()
	default:
		next, err = b.bestMove(&why)
	}
	if err == nil {
		err = b.predict(next, &why)
	}
	if err != nil {
		return present, plan.Reason{}, err
	}
	if next.Equal(present) && b.Probation.Rest == 0 {
		stay := why
		b.now.stay = &stay
	}
	return next, why, nil
}

// predict adds the predicted step and the bottleneck of a decision to its reason.
func (b *balancer) predict(next layout.Layout, why *plan.Reason) error {
	s := b.now.Step
	if next.Stages() != s.Present.Stages() || next.Map() != s.Present.Map() {
		sized, err := s.Resize(next.Stages(), next.Schedule.Microbatches)
		if err != nil {
			return err
		}
		s = sized.Move(next)
		optimum, err := balance.Partition(s.CutProblem())
		if err != nil {
			return err
		}
		why.Optimum = optimum.Bottleneck
	}
	r, err := s.CutProblem().Evaluate(next.Cuts)
	if err != nil {
		return err
	}
	why.Bottleneck, why.Predicted = r.Bottleneck, b.now.PresentSeconds()
	if !next.Equal(b.now.Present) || b.Probation.Rest > 0 {
		why.Predicted = s.Seconds(next)
	}
	return nil
}

// bestMove returns a layout that is surely worth the move, else the present layout. It tries
// the best layout for the measured costs. If that gain may be noise and some ranks may have
// been disturbed, it tries the best layout for the costs without the disturbance.
func (b *balancer) bestMove(why *plan.Reason) (layout.Layout, error) {
	next, err := b.choose(b.now.Step, why)
	if err == nil {
		next, err = b.acceptIfWorth(next, why)
	}
	if err != nil || why.Kept != plan.KeptUncertain || b.now.costs.Doubt == nil {
		return next, err
	}
	stay := *why
	next, err = b.choose(b.problem.Step(b.now.costs.Undisturbed().Table, b.now.Present), why)
	if err == nil {
		next, err = b.acceptIfWorth(next, why)
	}
	if err == nil && next.Equal(b.now.Present) {
		*why = stay
	}
	return next, err
}

// isDue reports whether to balance after this step. The settings say when. With a fixed
// interval it is also due after the second step of a run and of a changed model: the first
// step is slower.
func (b *balancer) isDue() (bool, error) {
	s, known := b.now, b.now.costs.Known()
	if !b.trigger.Auto() {
		return (b.trigger.Step(0, 0) || b.Settles) && known, nil
	}
	if !known || b.Fresh && !s.costs.Sure() {
		return false, nil
	}
	if s.best == 0 {
		best := s.Present.Cuts
		if s.Config.Balance.Moves() {
			r, err := balance.Partition(s.CutProblem())
			if err != nil {
				return false, err
			}
			best = r.Cuts
		}
		s.best = s.Estimate(best)
		if wide, ok := b.bestOfThisMap(); ok {
			s.best = min(s.best, s.Seconds(wide))
		}
		if other, ok := b.bestOfOtherMap(s.Step); ok {
			s.best = min(s.best, s.Seconds(other))
		}
	}
	best := s.best
	if s.stay != nil {
		best = s.PresentSeconds()
	}
	return b.trigger.Step(s.PresentSeconds(), best), nil
}

// choose returns the layout that the balancer of the settings prefers for the costs of s. Diffusion
// may exchange messages with neighbours. A partition is a pure function of the costs. Static
// balancers keep the cuts.
func (b *balancer) choose(s *search.Step, why *plan.Reason) (layout.Layout, error) {
	cuts := s.Present.Cuts
	switch c := s.Config.Balance; c.Kind {
	case "diffusion":
		found, d, err := b.diffuse(s.CutProblem(), cuts, balance.DiffusionOptions{Gamma: c.Gamma, MaxRounds: c.MaxRounds})
		if err != nil {
			return s.Present, err
		}
		cuts, why.Diffusion = s.FasterCuts(found), &d
	case "partition":
		var err error
		if cuts, err = s.NextCuts(horizon); err != nil {
			return s.Present, err
		}
	}
	next := s.Layout(cuts)
	if other, ok := b.bestOfOtherMap(s); ok {
		next = s.FasterLayout(next, other)
	}
	return next, nil
}

// diffuse balances by diffusion, among ranks or in memory.
func (b *balancer) diffuse(problem balance.Problem, present partition.Partition, o balance.DiffusionOptions) (partition.Partition, balance.Descent, error) {
	if b.Neighbours != nil {
		return b.Neighbours.diffuse(problem, present, o)
	}
	r, d, err := balance.Diffusion(problem, present, o)
	return r.Cuts, d, err
}
