package plan

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/profile"
	"dynmo/src/schedule"
)

// Balancer decides after a step where layers are in the next one, and in which
// order they are worked on.
type Balancer interface {
	// Decide returns the layout of the next step, and why. It is called once after
	// every step, with what the step showed and the layout that it was run in. Its
	// answer depends on gathered values only, so it is the same on every rank.
	Decide(m profile.Measurement, present layout.Layout) (next layout.Layout, why Reason, err error)
}

// Reason is why a balancer answered as it did. The zero Reason is that there was
// nothing to decide after this step.
type Reason struct {
	Decided    bool
	Predicted  float64              // makespan of the next step, in seconds
	Bottleneck float64              // of the next cuts, in what the balancer goes by
	Optimum    float64              // the smallest possible
	Diffusion  *balance.Descent     // how it was found; nil for other balancers
	Full       *balance.MemoryError // memory allows no cuts any more: layers stay. Told once until the model changes
}

// Detail returns what an event tells of a decision for a layout.
func (r Reason) Detail(next layout.Layout) map[string]any {
	if r.Full != nil {
		return map[string]any{"kept": r.Full.Error()}
	}
	d := map[string]any{
		"schedule": string(next.Schedule.Kind), "cuts": []int(next.Cuts),
		"bottleneck": r.Bottleneck, "optimum": r.Optimum, "gap": balance.Gap(r.Bottleneck, r.Optimum),
	}
	if r.Diffusion != nil {
		d["rounds"], d["potential"] = r.Diffusion.Rounds, r.Diffusion.Potential
	}
	return d
}

// BalancerOptions are what a balancer needs besides its planner.
type BalancerOptions struct {
	// Diffuse balances by diffusion: among ranks by messages, where there are none in
	// memory. Nil means in memory.
	Diffuse func(balance.Problem, partition.Partition, balance.DiffusionOptions) (partition.Partition, balance.Descent, error)
	// Repack is the share of the first step's throughput that may be given up to
	// get along with fewer stages; 0 keeps all stages. (Departs from the paper,
	// algorithm 4, which packs to a number of ranks that the user names.)
	Repack float64
}

// inMemory is diffusion without ranks.
func inMemory(p balance.Problem, present partition.Partition, o balance.DiffusionOptions) (partition.Partition, balance.Descent, error) {
	r, d, err := balance.Diffusion(p, present, o)
	return r.Cuts, d, err
}

// balancer is the one of the settings.
type balancer struct {
	BalancerOptions
	planner   *Planner
	costs     cost.Table // smoothed
	trigger   *balance.Trigger
	decided   bool    // after the step before
	full      bool    // memory allows no cuts since the model changed last
	reference float64 // makespan of the first step
	last      memo
}

// memo is what was found on some costs at a layout: as long as neither changes,
// so do the answers not.
type memo struct {
	costs         cost.Table
	layout        layout.Layout
	present, best float64 // predicted seconds in the present layout, and at the best cuts
	stay          *Reason // why the layout is the one that was decided for; nil if it is not
}

// NewBalancer returns the balancer of the planner's settings.
func NewBalancer(p *Planner, o BalancerOptions) (Balancer, error) {
	trigger, err := balance.NewTrigger(p.config.Balance.Every)
	if err != nil {
		return nil, fmt.Errorf("balance.%w", err)
	}
	if o.Diffuse == nil {
		o.Diffuse = inMemory
	}
	return &balancer{BalancerOptions: o, planner: p, trigger: trigger}, nil
}

// worthOrder is the share of a step that another order of work must save where layers
// stay: it takes other buffers, and costs are never measured twice alike.
const worthOrder = 0.005

func (b *balancer) Decide(m profile.Measurement, present layout.Layout) (layout.Layout, Reason, error) {
	if b.reference == 0 {
		b.reference = m.Summary.Makespan()
	}
	if m.Changed {
		b.costs.Layers, b.full = nil, false
	}
	if b.decided {
		b.trigger.Balanced(m.Balancing)
		b.decided = false
	}
	b.costs = m.Table.Smooth(b.costs, b.planner.config.Balance.Smooth)
	if !b.planner.config.Balance.Moves() && !b.planner.adapts() {
		return present, Reason{}, nil
	}
	p, err := b.planner.For(present.Stages())
	if err != nil {
		return present, Reason{}, fmt.Errorf("balance: %w", err)
	}
	b.planner = p
	b.remember(present)
	next, why, err := b.decide(present)
	if full, ok := errors.AsType[*balance.MemoryError](err); ok {
		// Masks and indices can make a pruned layer larger than it was.
		if b.full {
			return present, Reason{}, nil
		}
		b.full = true
		return present, Reason{Full: full}, nil
	}
	if err != nil {
		return present, Reason{}, fmt.Errorf("balance: %w", err)
	}
	if why.Decided {
		// The next step will take as much longer than its median costs predict.
		why.Predicted *= m.Summary.Makespan() / b.present()
		b.decided = true
	}
	return next, why, nil
}

// remember forgets what was found if costs or layout are others than before.
func (b *balancer) remember(present layout.Layout) {
	if l := &b.last; !l.costs.Equal(b.costs) || !l.layout.Equal(present) {
		*l = memo{costs: b.costs, layout: present}
	}
}

// decide decides if it is time to. The planner is that of the present number of
// stages.
func (b *balancer) decide(present layout.Layout) (layout.Layout, Reason, error) {
	fail := func(err error) (layout.Layout, Reason, error) { return present, Reason{}, err }
	if due, err := b.due(present); err != nil || !due {
		return fail(err)
	}
	if b.last.stay != nil {
		return present, *b.last.stay, nil
	}
	problem := b.planner.problem(b.costs, b.planner.by)
	optimum, err := balance.Partition(problem)
	if err != nil {
		return fail(err)
	}
	why := Reason{Decided: true, Optimum: optimum.Bottleneck}
	next, err := b.choose(problem, present, &why)
	if err != nil {
		return fail(err)
	}
	p, err := b.planner.For(next.Stages())
	if err != nil {
		return fail(err)
	}
	if p != b.planner {
		problem = p.problem(b.costs, p.by)
	}
	r, err := problem.Evaluate(next.Cuts)
	if err != nil {
		return fail(err)
	}
	why.Bottleneck, why.Predicted = r.Bottleneck, b.present()
	if next.Equal(present) {
		b.last.stay = &why
	} else {
		why.Predicted = p.seconds(b.costs, next.Cuts, next.Schedule)
	}
	return next, why, nil
}

// present returns the makespan of a step in the present layout, simulated on the
// costs.
func (b *balancer) present() float64 {
	if l := &b.last; l.present == 0 {
		l.present = b.planner.seconds(b.costs, l.layout.Cuts, l.layout.Schedule)
	}
	return b.last.present
}

// due reports whether to balance after this step.
func (b *balancer) due(present layout.Layout) (bool, error) {
	if !b.trigger.Auto() {
		return b.trigger.Step(0, 0), nil
	}
	if l := &b.last; l.best == 0 {
		best := present.Cuts
		if b.planner.config.Balance.Moves() {
			r, err := balance.Partition(b.planner.problem(b.costs, b.planner.by))
			if err != nil {
				return false, err
			}
			best = r.Cuts
		}
		l.best = b.planner.estimate(b.costs, best)
	}
	best := b.last.best
	if b.last.stay != nil {
		best = b.present()
	}
	return b.trigger.Step(b.present(), best), nil
}

// choose returns the layout that the settings' balancer takes. Diffusion may talk
// to the neighbours; partition is a pure function of the costs; static balancers
// leave layers where they are.
func (b *balancer) choose(problem balance.Problem, present layout.Layout, why *Reason) (layout.Layout, error) {
	p, cuts := b.planner, present.Cuts
	switch s := p.config.Balance; s.Kind {
	case "diffusion":
		found, d, err := b.Diffuse(problem, cuts, balance.DiffusionOptions{Gamma: s.Gamma, MaxRounds: s.MaxRounds})
		if err != nil {
			return present, err
		}
		cuts, why.Diffusion = p.faster(b.costs, present.Cuts, found), &d
	case "partition":
		var err error
		if cuts, err = p.next(b.costs, present.Cuts); err != nil {
			return present, err
		}
	}
	if b.Repack > 0 {
		p, cuts = b.repack(cuts)
	}
	return p.layout(cuts, b.order(p, present, cuts)), nil
}

// order returns the schedule for the steps after a decision for some cuts.
func (b *balancer) order(p *Planner, present layout.Layout, cuts partition.Partition) schedule.Schedule {
	s := p.Schedule(b.costs, cuts)
	if p == b.planner && cuts.Equal(present.Cuts) && p.fits(b.costs, cuts, present.Schedule) {
		if s.Equal(present.Schedule) || p.seconds(b.costs, cuts, s) > (1-worthOrder)*b.present() {
			return present.Schedule
		}
	}
	return s
}

// repack returns the fewest stages whose predicted throughput stays within the
// tolerance of the first step's, and their cuts. Numbers of stages that the
// schedule does not allow are passed over.
func (b *balancer) repack(cuts partition.Partition) (*Planner, partition.Partition) {
	planner := b.planner
	for stages := planner.Map.Stages - 1; stages > 0; stages-- {
		fewer, err := b.planner.For(stages)
		if err != nil {
			continue
		}
		next, err := fewer.Cuts(b.costs)
		if err != nil || fewer.Makespan(b.costs, next)*(1-b.Repack) > b.reference {
			break // memory, or time: fewer have less of both
		}
		planner, cuts = fewer, next
	}
	return planner, cuts
}
