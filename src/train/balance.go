package train

import (
	"fmt"
	"strconv"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/migrate"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// balancer decides where layers should live. Its state is the same on every
// rank, since it is made of gathered values only.
type balancer struct {
	config   config.Config
	inFlight []int
	first    partition.Partition // before the first step
	costs    cost.Table          // smoothed
	every    int
	pending  *record.Event // the last decision, until its effect is measured
}

// newBalancer returns the balancer of the settings and decides the first
// partition: the static balancer's, or the uniform one, where memory allows,
// for those that measure first. dense is the chain before training.
func newBalancer(c config.Config, dense cost.Table) (balancer, error) {
	b := balancer{config: c, costs: dense}
	kind, p := schedule.Kind(c.Schedule.Kind), c.Parallel
	for s := range p.Stages {
		b.inFlight = append(b.inFlight, kind.InFlight(s, p.Stages, p.Microbatches))
	}
	if c.Balance.Every != "auto" {
		n, err := strconv.Atoi(c.Balance.Every)
		if err != nil {
			return b, fmt.Errorf("balance.every = %q: wanted \"auto\" or a number of steps", c.Balance.Every)
		}
		b.every = n
	}
	problem := b.problem(dense, balance.ByParam)
	decide := balance.Uniform
	switch c.Balance.Kind {
	case "param":
		decide = balance.Param
	case "regex":
		decide = func(p balance.Problem) (balance.Result, error) { return balance.Regex(p, c.Balance.Regex) }
	case "partition", "diffusion":
		decide = func(p balance.Problem) (balance.Result, error) {
			if r, err := balance.Uniform(p); err == nil {
				return r, nil
			}
			return balance.Partition(p)
		}
	}
	r, err := decide(problem)
	if err != nil {
		return b, fmt.Errorf("balance: %w", err)
	}
	b.first = r.Cuts
	return b, nil
}

// problem states what is to be balanced.
func (b *balancer) problem(t cost.Table, by balance.By) balance.Problem {
	return balance.New(t, by, b.config.Parallel.Stages, b.inFlight, b.config.Balance.MemoryLimitBytes)
}

// static reports whether the cuts never move.
func (b *balancer) static() bool {
	k := b.config.Balance.Kind
	return k == "uniform" || k == "param" || k == "regex"
}

// changed says that the model changed before this step: what was measured so
// far is no guide any more.
func (b *balancer) changed() { b.costs.Layers = nil }

// decide returns the cuts for the next steps. Diffusion talks to the
// neighbours; everything else is a pure function of the gathered costs.
func (b *balancer) decide(stages *comm.Group, now partition.Partition) (balance.Result, map[string]any, error) {
	problem := b.problem(b.costs, balance.By(b.config.Balance.By))
	if b.config.Balance.Kind == "diffusion" {
		r, d, err := balance.Diffusion(problem, now, balance.DiffusionOptions{Gamma: b.config.Balance.Gamma, MaxRounds: b.config.Balance.MaxRounds})
		return r, map[string]any{"rounds": d.Rounds, "recuts": d.Recuts}, err
	}
	horizon := float64(100 * b.config.Parallel.Microbatches)
	r, err := balance.FewestMoves(problem, now, horizon, b.config.Comm.BandwidthBytes)
	return r, map[string]any{"gap": 0.0}, err
}

// after is what follows a step: measure, tell, balance, migrate. Collective
// over all ranks.
func (r *Rank) after(step int, done pipeline.Result, agreed pipeline.Agreement, start float64, skip bool) error {
	clock := r.Device.Clock()
	began := clock.Now()
	table, summary, err := profile.Gather(r.stages, r.replicas, r.x, r.stage, done.Spans)
	if err != nil {
		return err
	}
	b := &r.balancer
	b.costs = table.Smooth(b.costs, r.Config.Balance.Smooth)
	if err := r.settle(summary.Makespan()); err != nil {
		return err
	}
	layout := r.now
	if err := r.rebalance(step, summary); err != nil {
		return err
	}
	if r.World.Rank() != 0 {
		return nil
	}
	return r.tell(step, agreed, skip, table, summary, layout, start, clock.Now()-began)
}

// rebalance decides whether to move layers, and moves them.
func (r *Rank) rebalance(step int, summary trace.Summary) error {
	clock := r.Device.Clock()
	began := clock.Now()
	if r.Repartition != nil {
		_, err := r.migrate(step, r.Repartition(step, r.now))
		return err
	}
	next, event := r.now, record.Event{Step: step, Kind: record.Balance, Clock: clock.Kind(), Before: record.Float(summary.Makespan())}
	switch {
	case !r.balancer.static() && step+1 < r.Config.Train.Steps:
		if r.balancer.every == 0 || (step+1)%r.balancer.every != 0 {
			return nil
		}
		result, detail, err := r.balancer.decide(r.stages, r.now)
		if err != nil {
			return fmt.Errorf("balance: %w", err)
		}
		next, event.Detail = result.Cuts, detail
		event.Detail["bottleneck"], event.Detail["lower_bound"] = result.Bottleneck, result.LowerBound
	}
	decided := clock.Now()
	event.Seconds = record.Float(decided - began)
	moved, err := r.migrate(step, next)
	if err != nil {
		return err
	}
	event.Bytes = moved.Bytes
	r.balancer.pending = &event
	return nil
}

// migrate moves layers to match a partition.
func (r *Rank) migrate(step int, next partition.Partition) (migrate.Moved, error) {
	if next.Equal(r.now) {
		return migrate.Moved{}, nil
	}
	clock := r.Device.Clock()
	began := clock.Now()
	r.runner.Release()
	s, moved, err := migrate.Run(r.stages, r.now, next, r.x, r.stage)
	if err != nil {
		return moved, err
	}
	r.stage, r.now = s, next
	if err := r.plan(); err != nil {
		return moved, fmt.Errorf("migrate: %w", err)
	}
	return moved, r.event(record.Event{
		Step: step, Kind: record.Migrate, Clock: clock.Kind(), Bytes: moved.Bytes,
		Seconds: record.Float(clock.Now() - began),
		Detail:  map[string]any{"layers": moved.Layers, "cuts": []int(next)},
	})
}
