package train

import (
	"errors"
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
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// balancer decides where layers should live. Its state is the same on every
// rank, since it is made of gathered values only.
type balancer struct {
	config   config.Config
	inFlight []int   // by virtual stage: most microbatches in flight
	fixed    []int64 // by virtual stage: bytes no layer accounts for
	schedule schedule.Schedule
	first    partition.Partition // before the first step
	costs    cost.Table          // smoothed, on a rank of speed 1
	speeds   profile.Speeds
	trigger  *balance.Trigger
	pending  *record.Event // the last decision, until its effect is measured
	full     bool          // memory allows no cuts since the model changed last
}

// newBalancer returns the balancer of the settings and decides the first
// partition: the static balancer's, or the uniform one, where memory allows,
// for those that measure first. dense is the chain before training, fixed the
// bytes of a virtual stage that no layer accounts for.
func newBalancer(c config.Config, dense cost.Table, fixed func(m partition.Map, virtual, inFlight int) int64) (balancer, error) {
	b := balancer{config: c}
	var err error
	p := c.Parallel
	if b.schedule, err = schedule.New(schedule.Kind(c.Schedule.Kind), p.Stages, c.Schedule.Virtual(), p.Microbatches); err != nil {
		return b, err
	}
	b.inFlight = b.schedule.InFlight()
	for v, n := range b.inFlight {
		b.fixed = append(b.fixed, fixed(b.schedule.Map, v, n))
	}
	if err := b.schedule.Check(b.schedule.Cap); err != nil {
		return b, err
	}
	if b.trigger, err = balance.NewTrigger(c.Balance.Every); err != nil {
		return b, fmt.Errorf("balance.%w", err)
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
		if _, ok := errors.AsType[*balance.MemoryError](err); ok {
			err = fmt.Errorf("balance.memory_limit_bytes = %d: %w", c.Balance.MemoryLimitBytes, err)
		}
		return b, fmt.Errorf("balance: %w", err)
	}
	b.first = r.Cuts
	return b, nil
}

// problem states what is to be balanced, over virtual stages: each has its share
// of its stage's memory.
func (b *balancer) problem(t cost.Table, by balance.By) balance.Problem {
	m := b.schedule.Map
	p := balance.New(t, by, m.Virtual(), b.inFlight, b.config.Balance.MemoryLimitBytes/int64(m.Chunks))
	spread := func(list []float64, share float64) []float64 {
		if list == nil {
			return nil
		}
		out := make([]float64, m.Virtual())
		for v := range out {
			out[v] = list[m.Stage(v)] * share
		}
		return out
	}
	p.Slow, p.Fixed = spread(p.Slow, 1), spread(p.Fixed, 1/float64(m.Chunks))
	p.FixedBytes = b.fixed
	return p
}

// bytes returns the memory that every stage needs at some cuts.
func (b *balancer) bytes(t cost.Table, cuts partition.Partition) []int64 {
	m := b.schedule.Map
	list := make([]int64, m.Stages)
	for v, n := range b.inFlight {
		at := &list[m.Stage(v)]
		*at += b.fixed[v]
		lo, hi := cuts.Range(v)
		for _, l := range t.Layers[lo:hi] {
			*at += l.Bytes.Static() + int64(n)*l.Bytes.Activations
		}
	}
	return list
}

// changed says that the model changed before this step: what was measured so
// far is no guide any more.
func (b *balancer) changed() {
	b.costs.Layers, b.full = nil, false
	b.speeds.Changed()
}

// predict returns the makespan of a step at some cuts, simulated on costs.
// Messages are free.
func (b *balancer) predict(t cost.Table, cuts partition.Partition) float64 {
	return sim.Makespan(b.schedule, t.Stages(cuts, b.schedule.Map))
}

// due reports whether to balance after this step.
func (b *balancer) due(now partition.Partition) (bool, error) {
	if !b.trigger.Auto() {
		return b.trigger.Step(0, 0), nil
	}
	best, err := balance.Partition(b.problem(b.costs, balance.By(b.config.Balance.By)))
	if err != nil {
		return false, err
	}
	return b.trigger.Step(b.predict(b.costs, now), b.predict(b.costs, best.Cuts)), nil
}

// horizon is how many steps FewestMoves expects new cuts to last where the
// settings do not say.
const horizon = 100

// decide returns the cuts for the next steps, and what is worth noting about
// them. Diffusion talks to the neighbours; partition is a pure function of the
// gathered costs. By time, cuts that predict no faster step are not taken.
func (b *balancer) decide(stages *comm.Group, now partition.Partition) (partition.Partition, map[string]any, error) {
	problem := b.problem(b.costs, balance.By(b.config.Balance.By))
	optimum, err := balance.Partition(problem)
	if err != nil {
		return nil, nil, err
	}
	next, detail := optimum.Cuts, make(map[string]any)
	if b.config.Balance.Kind == "diffusion" {
		o := balance.DiffusionOptions{Gamma: b.config.Balance.Gamma, MaxRounds: b.config.Balance.MaxRounds}
		var d balance.Descent
		if next, d, err = balance.Diffuse(problem.Stage(now, stages.Rank()), neighbours{stages}, o); err != nil {
			return nil, nil, err
		}
		detail["rounds"], detail["potential"] = d.Rounds, d.Potential
	} else {
		steps, err := strconv.Atoi(b.config.Balance.Every)
		if err != nil {
			steps = horizon // "auto"
		}
		r, err := balance.FewestMoves(problem, now, float64(steps*b.config.Parallel.Microbatches), b.config.Comm.BandwidthBytes)
		if err != nil {
			return nil, nil, err
		}
		next = r.Cuts
	}
	if b.config.Balance.By == string(balance.ByTime) && b.predict(b.costs, next) >= b.predict(b.costs, now) {
		next = now
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

// after is what follows a step: measure, tell, balance, migrate. Collective
// over all ranks.
func (r *Rank) after(step int, done pipeline.Result, agreed pipeline.Agreement, start float64, skip bool) error {
	clock := r.Device.Clock()
	var memory profile.Memory
	if r.Before > 0 {
		memory.Resident = profile.Anonymous() - r.Before
	}
	if d, ok := r.Device.(interface{ Kept() int64 }); ok {
		memory.Kept = d.Kept()
	}
	began := clock.Now()
	seen, err := profile.Gather(r.stages, r.replicas, r.x, r.stage, done.Spans, memory)
	if err != nil {
		return err
	}
	b := &r.balancer
	seen.Costs = b.speeds.Observe(seen.Costs, r.owners(r.now))
	b.costs = seen.Costs.Smooth(b.costs, r.Config.Balance.Smooth)
	if err := r.settle(seen.Summary.Makespan()); err != nil {
		return err
	}
	layout := r.now
	if err := r.rebalance(step, began, seen.Summary); err != nil {
		return err
	}
	if r.World.Rank() != 0 {
		return nil
	}
	return r.tell(step, agreed, skip, seen, layout, start, clock.Now()-began)
}

// rebalance decides whether to move layers, and moves them. It may say so one
// step later, when the effect has been measured.
func (r *Rank) rebalance(step int, began float64, summary trace.Summary) error {
	if r.Repartition != nil {
		_, err := r.migrate(step, r.Repartition(step, r.now))
		return err
	}
	b, clock := &r.balancer, r.Device.Clock()
	if !b.config.Balance.Moves() || step+1 == r.Config.Train.Steps {
		return nil
	}
	due, err := b.due(r.now)
	if err == nil && !due {
		return nil
	}
	var next partition.Partition
	var detail map[string]any
	if err == nil {
		next, detail, err = b.decide(r.stages, r.now)
	}
	if memory, ok := errors.AsType[*balance.MemoryError](err); ok {
		return r.stay(step, memory)
	}
	if err != nil {
		return fmt.Errorf("balance: %w", err)
	}
	event := record.Event{
		Step: step, Kind: record.Balance, Clock: clock.Kind(), Detail: detail,
		Before: record.Float(summary.Makespan()), Predicted: record.Float(b.predict(b.costs, next)),
		Seconds: record.Float(clock.Now() - began),
	}
	moved, err := r.migrate(step, next)
	if err != nil {
		return err
	}
	event.Bytes = moved.Bytes
	b.pending = &event
	spent := []float64{clock.Now() - began}
	if err := comm.Allreduce(r.World, spent, func(a, b float64) float64 { return max(a, b) }); err != nil {
		return fmt.Errorf("balance: %w", err)
	}
	b.trigger.Balanced(spent[0])
	return nil
}

// stay keeps the layers where they are, since no cuts would fit in memory any
// more: masks and indices can make a pruned layer larger than it was. It says
// so once until the model changes again.
func (r *Rank) stay(step int, why *balance.MemoryError) error {
	if r.balancer.full {
		return nil
	}
	r.balancer.full = true
	return r.event(record.Event{
		Step: step, Kind: record.Balance, Clock: r.Device.Clock().Kind(),
		Detail: map[string]any{"kept": why.Error()},
	})
}

// migrate moves layers to match a partition.
func (r *Rank) migrate(step int, next partition.Partition) (migrate.Moved, error) {
	if next.Equal(r.now) {
		return migrate.Moved{}, nil
	}
	clock := r.Device.Clock()
	began := clock.Now()
	r.runner.Release()
	s, moved, err := migrate.Run(r.stages, r.owners(r.now), r.owners(next), r.x, r.stage)
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
