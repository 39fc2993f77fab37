package train

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/migrate"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// after is what follows a step: measure, tell, balance, migrate. Collective
// over all ranks.
func (r *Rank) after(step int, done pipeline.Result, agreed pipeline.Agreement, start float64, skip bool) error {
	clock := r.Device.Clock()
	var memory profile.Memory
	if r.Before > 0 {
		memory.Resident = profile.Anonymous() - r.Before
	}
	memory.Kept = r.Device.Kept()
	began := clock.Now()
	seen, err := profile.Gather(r.stages, r.replicas, r.x, r.stage, done.Spans, memory, r.joules())
	if err != nil {
		return err
	}
	instructions, err := profile.Instructions(r.stages, done.Instructions)
	if err != nil {
		return err
	}
	b := &r.balancer
	seen.Costs = b.speeds.Observe(seen.Costs, r.owners(r.now))
	b.costs = seen.Costs.Smooth(b.costs, r.Config.Balance.Smooth)
	if err := r.settle(seen.Summary.Makespan()); err != nil {
		return err
	}
	ran := layout{r.now, b.schedule, instructions}
	if err := r.rebalance(step, began, seen.Summary); err != nil {
		return err
	}
	if r.World.Rank() != 0 {
		return nil
	}
	changed := !r.now.Equal(ran.cuts) || !b.schedule.Equal(ran.schedule)
	if err := r.trace(step, instructions, changed); err != nil {
		return err
	}
	return r.tell(step, agreed, skip, seen, ran, start, clock.Now()-began)
}

// rebalance decides whether to move layers, and moves them. It may say so one
// step later, when the effect has been measured.
func (r *Rank) rebalance(step int, began float64, summary trace.Summary) error {
	if r.Repartition != nil {
		_, err := r.migrate(step, r.Repartition(step, r.now))
		return err
	}
	b, clock := &r.balancer, r.Device.Clock()
	if !b.decides() || step+1 == r.Config.Train.Steps {
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
	was, before := b.schedule, b.predict(b.costs, r.now)
	b.schedule = b.order(r.now, next)
	detail["schedule"] = string(b.schedule.Kind)
	// What the step took beyond what its median costs predict, the next will too.
	predicted := b.predict(b.costs, next) * summary.Makespan() / before
	event := record.Event{
		Step: step, Kind: record.Balance, Clock: clock.Kind(), Detail: detail,
		Before: record.Float(summary.Makespan()), Predicted: record.Float(predicted),
		Seconds: record.Float(clock.Now() - began),
	}
	if next.Equal(r.now) && !b.schedule.Equal(was) {
		if err := r.plan(); err != nil {
			return fmt.Errorf("balance: %w", err)
		}
	}
	moved, err := r.migrate(step, next)
	if err != nil {
		return err
	}
	event.Bytes = moved.Bytes
	if err := r.flush(); err != nil {
		return err
	}
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
	r.release()
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
