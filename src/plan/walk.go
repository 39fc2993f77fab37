package plan

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// Options are what a simulated run is made of besides its costs.
type Options struct {
	Config  config.Config // schedule, stages, replicas, balancer, memory
	Network sim.Network
	Fixed   FixedBytes
	Static  bool // layers stay where they are first, whatever the balancer
	Spans   bool // whether plans of legs keep their spans
	// Repack is the share of the first step's throughput that may be given up to
	// get along with fewer stages; 0 keeps all stages. (Departs from the paper,
	// algorithm 4, which packs to a number of ranks that the user names.)
	Repack float64
}

// Leg is consecutive steps of a simulated run that are all alike.
type Leg struct {
	Step, Steps int
	Change      string // what changed the model before its first step
	Plan        Plan
	Stages      int
	Makespan    float64 // of a step; with random delays this and what follows are means
	Idle        trace.Idle
	Seconds     float64 // of a step, with the gradient sum over replicas
	Exposed     float64 // of it: gradient sum that no work hides
	Moved       int64   // bytes that changed owner before the leg, of one replica
	Moving      float64 // seconds that took
}

// Run is a simulated training run.
type Run struct {
	Legs        []Leg
	Seconds     float64 // steps and moves
	Moving      float64 // of which moves
	RankSeconds float64 // seconds of every rank that holds layers, added up
}

// draws is how many steps stand for all of a leg where messages are delayed at
// random; without delays all steps of a leg are equal and one is simulated.
const draws = 8

// Walk simulates a training run: a step for every table of the series, the
// balancer's decisions at its times, the moves that follow and, if asked for,
// repacking. Moves take the bytes of the busiest stage over the slowest link;
// measuring and deciding, which a simulation cannot know, take nothing.
func Walk(series cost.Series, o Options) (Run, error) {
	w := walker{o: o}
	var err error
	if w.planner, err = New(o.Config, o.Network, o.Fixed); err != nil {
		return Run{}, err
	}
	first, err := w.planner.First(series[0].Table)
	if err != nil {
		return Run{}, err
	}
	w.cuts = first.Cuts
	if w.trigger, err = balance.NewTrigger(o.Config.Balance.Every); err != nil {
		return Run{}, fmt.Errorf("balance.%w", err)
	}
	for _, s := range series {
		if err := w.stretch(s); err != nil {
			return Run{}, fmt.Errorf("step %d: %w", s.Step, err)
		}
	}
	for _, l := range w.run.Legs {
		seconds := l.Seconds*float64(l.Steps) + l.Moving
		w.run.Seconds += seconds
		w.run.Moving += l.Moving
		w.run.RankSeconds += seconds * float64(l.Stages*o.Config.Parallel.Replicas)
	}
	return w.run, nil
}

// walker is a simulated run under way.
type walker struct {
	o         Options
	planner   *Planner
	cuts      partition.Partition
	trigger   *balance.Trigger
	reference float64 // makespan of the first step, on all stages
	moved     int64   // bytes and seconds of the move that has just been made
	moving    float64
	run       Run
}

// stretch runs the steps of one table. As long as neither cuts nor stages change
// its steps are one leg.
func (w *walker) stretch(s cost.Phase) error {
	steps, change := max(1, s.Steps), s.Change
	for done := 0; done < steps; {
		leg, err := w.leg(s)
		if err != nil {
			return err
		}
		leg.Step, leg.Change, change = s.Step+done, change, ""
		if w.reference == 0 {
			w.reference = leg.Makespan
		}
		for settled, moved := false, false; done < steps && !moved; {
			n, due, err := w.untilDue(s, leg, steps-done, settled)
			if err != nil {
				return err
			}
			leg.Steps += n
			done += n
			if due {
				if moved, err = w.balance(s); err != nil {
					return err
				}
				settled = !moved
			}
		}
		w.run.Legs = append(w.run.Legs, leg)
	}
	return nil
}

// untilDue returns the steps of a leg, of at most left, up to the one after which
// to balance, if there is one. Who has settled that there is nothing to move has
// no more to decide on these costs.
func (w *walker) untilDue(s cost.Phase, leg Leg, left int, settled bool) (steps int, due bool, err error) {
	if w.o.Static || !w.o.Config.Balance.Moves() {
		return left, false, nil
	}
	if settled {
		for range left { // the trigger goes on counting
			if w.trigger.Step(leg.Makespan, leg.Makespan) {
				w.trigger.Balanced(0)
			}
		}
		return left, false, nil
	}
	least := 0.0
	if w.trigger.Auto() {
		best, err := balance.Partition(w.planner.Problem(s.Mean(), balance.By(w.o.Config.Balance.By)))
		if err != nil {
			return left, false, nil // nothing fits any more: layers stay
		}
		least = w.planner.Makespan(s.Mean(), best.Cuts)
	}
	for step := range left {
		if w.trigger.Step(leg.Makespan, least) {
			return step + 1, true, nil
		}
	}
	return left, false, nil
}

// balance decides, and reports whether layers moved.
func (w *walker) balance(s cost.Phase) (bool, error) {
	t := s.Mean()
	next, err := w.decide(t)
	if _, full := errors.AsType[*balance.MemoryError](err); full {
		next, err = w.cuts, nil // nothing fits any more: layers stay
	}
	if err != nil {
		return false, err
	}
	planner := w.planner
	if w.o.Repack > 0 {
		planner, next = w.repack(t, next)
	}
	if planner == w.planner && next.Equal(w.cuts) {
		w.trigger.Balanced(0)
		return false, nil
	}
	w.moved, w.moving = move(t, w.planner.Map.Owners(w.cuts), planner.Map.Owners(next), w.planner.bandwidth())
	w.planner, w.cuts = planner, next
	w.trigger.Balanced(w.moving)
	return true, nil
}

// decide returns the cuts that the settings' balancer takes on all stages.
func (w *walker) decide(t cost.Table) (partition.Partition, error) {
	if w.o.Config.Balance.Kind != "diffusion" {
		return w.planner.next(t, w.cuts)
	}
	b := w.o.Config.Balance
	problem := w.planner.Problem(t, balance.By(b.By))
	r, _, err := balance.Diffusion(problem, w.cuts, balance.DiffusionOptions{Gamma: b.Gamma, MaxRounds: b.MaxRounds})
	if err != nil {
		return nil, err
	}
	return w.planner.faster(t, w.cuts, r.Cuts), nil
}

// repack returns the fewest stages whose predicted throughput stays within the
// tolerance of the first step's, and their cuts. Numbers of stages that the
// schedule does not allow are passed over.
func (w *walker) repack(t cost.Table, cuts partition.Partition) (*Planner, partition.Partition) {
	planner := w.planner
	for stages := planner.Map.Stages - 1; stages > 0; stages-- {
		c := w.o.Config
		c.Parallel.Stages = stages
		fewer, err := New(c, w.o.Network, w.o.Fixed)
		if err != nil {
			continue
		}
		next, err := fewer.Cuts(t)
		if err != nil || fewer.Makespan(t, next)*(1-w.o.Repack) > w.reference {
			break // memory, or time: fewer have less of both
		}
		planner, cuts = fewer, next
	}
	return planner, cuts
}

// leg simulates a step at the present cuts; with random delays some steps, for
// their mean.
func (w *walker) leg(s cost.Phase) (Leg, error) {
	plan, err := w.planner.At(s, w.cuts)
	if err != nil {
		return Leg{}, err
	}
	l := Leg{Plan: plan, Stages: w.planner.Map.Stages, Moved: w.moved, Moving: w.moving}
	w.moved, w.moving = 0, 0
	n := 1
	if w.o.Network.Delay.Most > 1 {
		n = min(draws, max(1, s.Steps))
	}
	for k := range n {
		one := plan
		if k > 0 {
			if one, err = w.planner.Simulate(s, plan.Layout, s.Step+k); err != nil {
				return Leg{}, err
			}
		}
		share := 1 / float64(n)
		l.Seconds += share * one.Seconds
		l.Exposed += share * one.Exposed
		l.Makespan += share * one.Step.Makespan()
		l.Idle = l.Idle.Plus(one.Idle, share)
	}
	if !w.o.Spans {
		l.Plan.Step.Spans = nil
	}
	return l, nil
}

// move returns the bytes that change owner, and the seconds that takes: those of
// the stage that sends or receives most, over its link.
func move(t cost.Table, from, to partition.Owners, bandwidth float64) (bytes int64, seconds float64) {
	out, in := make(map[int]int64), make(map[int]int64)
	busiest := int64(0)
	for _, l := range from.Moved(to) {
		b := t.Layers[l].Bytes.Parameters + t.Layers[l].Bytes.Optimizer
		bytes += b
		out[from[l]] += b
		in[to[l]] += b
		busiest = max(busiest, out[from[l]], in[to[l]])
	}
	if bandwidth > 0 {
		seconds = float64(busiest) / bandwidth
	}
	return bytes, seconds
}
