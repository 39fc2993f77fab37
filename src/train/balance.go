package train

import (
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// balancer decides where layers should live and in which order they are worked
// on. Its state is the same on every rank, since it is made of gathered values
// only.
type balancer struct {
	config   config.Config
	planner  *plan.Planner
	schedule schedule.Schedule   // of the steps to come
	first    partition.Partition // before the first step
	costs    cost.Table          // smoothed, on a rank of speed 1
	speeds   profile.Speeds
	trigger  *balance.Trigger
	pending  *record.Event // the last decision, until its effect is measured
	full     bool          // memory allows no cuts since the model changed last
}

// newBalancer returns the balancer of the settings and decides the first
// partition and schedule. dense is the chain before training, fixed the bytes of
// a virtual stage that no layer accounts for.
func newBalancer(c config.Config, dense cost.Table, fixed plan.FixedBytes) (balancer, error) {
	b := balancer{config: c}
	var err error
	if b.planner, err = plan.New(c, sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes), fixed); err != nil {
		return b, err
	}
	b.schedule = b.planner.Base()
	if err := b.schedule.Check(b.schedule.Cap); err != nil {
		return b, err
	}
	if b.trigger, err = balance.NewTrigger(c.Balance.Every); err != nil {
		return b, fmt.Errorf("balance.%w", err)
	}
	b.first, err = b.planner.First(dense)
	return b, err
}

// problem states what is to be balanced, over virtual stages.
func (b *balancer) problem() balance.Problem {
	return b.planner.Problem(b.costs, balance.By(b.config.Balance.By))
}

// changed says that the model changed before this step: what was measured so
// far is no guide any more.
func (b *balancer) changed() {
	b.costs.Layers, b.full = nil, false
	b.speeds.Changed()
}

// predict returns the makespan of a step at some cuts in the present schedule,
// simulated on costs.
func (b *balancer) predict(t cost.Table, cuts partition.Partition) float64 {
	return sim.Run(b.planner.Step(t, cuts, b.schedule)).Makespan()
}

// worth is the share of a step that another order of work must save where layers
// stay: it takes other buffers, and costs are never measured twice alike.
const worth = 0.005

// order returns the schedule for the steps after a decision for the cuts next.
func (b *balancer) order(now, next partition.Partition) schedule.Schedule {
	s := b.planner.Schedule(b.costs, next)
	if next.Equal(now) && b.planner.Fits(b.costs, now, b.schedule) {
		after := sim.Run(b.planner.Step(b.costs, next, s)).Makespan()
		if after > (1-worth)*b.predict(b.costs, now) {
			return b.schedule
		}
	}
	return s
}

// decides reports whether there is anything to decide while training.
func (b *balancer) decides() bool { return b.config.Balance.Moves() || b.planner.Adapts() }

// due reports whether to balance after this step.
func (b *balancer) due(now partition.Partition) (bool, error) {
	if !b.trigger.Auto() {
		return b.trigger.Step(0, 0), nil
	}
	best := now
	if b.config.Balance.Moves() {
		r, err := balance.Partition(b.problem())
		if err != nil {
			return false, err
		}
		best = r.Cuts
	}
	return b.trigger.Step(b.predict(b.costs, now), b.planner.Estimate(b.costs, best)), nil
}

// decide returns the cuts for the next steps, and what is worth noting about
// them. Diffusion talks to the neighbours; partition is a pure function of the
// gathered costs; static balancers leave layers where they are.
func (b *balancer) decide(stages *comm.Group, now partition.Partition) (partition.Partition, map[string]any, error) {
	problem := b.problem()
	optimum, err := balance.Partition(problem)
	if err != nil {
		return nil, nil, err
	}
	next, detail := now, make(map[string]any)
	switch b.config.Balance.Kind {
	case "diffusion":
		o := balance.DiffusionOptions{Gamma: b.config.Balance.Gamma, MaxRounds: b.config.Balance.MaxRounds}
		cuts, d, err := balance.Diffuse(problem.Stage(now, stages.Rank()), neighbours{stages}, o)
		if err != nil {
			return nil, nil, err
		}
		next = b.planner.Faster(b.costs, now, cuts)
		detail["rounds"], detail["potential"] = d.Rounds, d.Potential
	case "partition":
		if next, err = b.planner.Next(b.costs, now); err != nil {
			return nil, nil, err
		}
	}
	r, err := problem.Evaluate(next)
	if err != nil {
		return nil, nil, err
	}
	detail["bottleneck"], detail["optimum"] = r.Bottleneck, optimum.Bottleneck
	detail["gap"] = balance.Gap(r.Bottleneck, optimum.Bottleneck)
	detail["cuts"] = []int(next)
	return next, detail, nil
}
