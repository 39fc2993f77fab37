package search

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/schedule"
)

// limitError is the error of balance.memory_limit_bytes where no cuts keep to it. Its text says
// which limit would do, and with which other settings this one would.
type limitError struct {
	*balance.MemoryError
	step *Step
}

// Unwrap returns what is missing.
func (e *limitError) Unwrap() error { return e.MemoryError }

// limited returns a *limitError for a *balance.MemoryError. The limits are not computed before
// its text is asked for.
func (s *Step) limited(err error) error {
	if full, ok := errors.AsType[*balance.MemoryError](err); ok {
		return &limitError{full, s}
	}
	return fmt.Errorf("balance: %w", err)
}

func (e *limitError) Error() string {
	text := fmt.Sprintf("balance.memory_limit_bytes = %d: %v", e.step.limit, e.MemoryError)
	least, err := e.step.leastLimit()
	if err != nil {
		return text
	}
	text += fmt.Sprintf("; wanted at least %d", least)
	var fit []string
	var best remedy
	for _, r := range e.step.remedies() {
		if r.least <= e.step.limit {
			fit = append(fit, r.sets)
		}
		if best.sets == "" || r.least < best.least {
			best = r
		}
	}
	switch {
	case len(fit) > 0:
		text += ", or " + strings.Join(fit, ", or ")
	case best.sets != "" && best.least < least:
		text += fmt.Sprintf(", or with %s at least %d", best.sets, best.least)
	}
	return text
}

// leastLimit returns the smallest memory limit with which a run can begin. Where stages hold
// several chunks it is the smallest with which the search of firstCuts finds cuts.
func (s *Step) leastLimit() (int64, error) {
	under := func(limit int64) *Step {
		p := *s.Problem
		p.limit = limit
		return p.Step(s.Costs, s.Present)
	}
	f, free := s.here, under(0)
	cuts, err := free.firstCuts(f)
	if err != nil {
		return 0, err
	}
	most := slices.Max(free.bytesInBase(cuts))
	if !s.Config.Balance.Moves() {
		return most, nil
	}
	if f.Chunks == 1 {
		return under(1).cutProblem(f, balance.ByParam).LeastCapacity() // of any limit: without, the problem has no capacity
	}
	return int64(sort.Search(int(most), func(limit int) bool {
		_, err := under(int64(limit)).firstCuts(f)
		return limit > 0 && err == nil
	})), nil
}

// remedy is other settings, and the smallest limit with them.
type remedy struct {
	sets  string
	least int64
}

// remedies returns settings that may need less memory: another schedule, more that is computed
// twice, moments that replicas share out, no spare places for copies, exact cuts, smaller microbatches, twice the stages.
func (s *Step) remedies() []remedy {
	var list []remedy
	p, t := s.Problem, s.Costs
	add := func(sets string, q *Problem, err error, t cost.Table) {
		if err != nil || q.Config.Validate() != nil {
			return
		}
		if least, err := q.Step(t, layout.Layout{}).leastLimit(); err == nil {
			list = append(list, remedy{sets, least})
		}
	}
	other := func(sets string, change func(*config.Config)) {
		c := p.Config
		change(&c)
		q, err := New(c, p.Network, p.fixed)
		add(sets, q, err, t)
	}
	less := func(sets string, change func(*config.Config)) {
		c := p.Config
		if change(&c); p.fixed == nil || c.Validate() != nil { // what is not the dense model's is not known
			return
		}
		q, err := New(c, p.Network, p.fixed)
		suited, _ := Suit(t, Shape(p.Config), c)
		add(sets, q, err, suited)
	}
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1} {
		if kind != p.Kind {
			other(fmt.Sprintf("schedule.kind = %q", kind), func(c *config.Config) { c.Schedule.Kind = string(kind) })
		}
	}
	twice := "plan"
	if p.Config.Balance.Kind == "diffusion" {
		twice = "block"
	}
	recompute := func(c *config.Config) { c.Model.Recompute = twice }
	if twice != p.Config.Model.Recompute {
		less(fmt.Sprintf("model.recompute = %q", twice), recompute)
	}
	if p.Mesh.Replicas > 1 && !p.Config.Optimizer.Shard {
		less("optimizer.shard = true", func(c *config.Config) { c.Optimizer.Shard = true })
		if twice != p.Config.Model.Recompute {
			less(fmt.Sprintf("optimizer.shard = true and model.recompute = %q", twice), func(c *config.Config) { c.Optimizer.Shard = true; recompute(c) })
		}
	}
	if set, other := lean(p.Config); set != "" {
		less(set, func(c *config.Config) { *c = other })
	}
	if !p.Config.Balance.Moves() {
		other(`balance.kind = "partition"`, func(c *config.Config) { c.Balance.Kind = "partition" })
	}
	half, err := p.Resize(p.Mesh.Stages, 2*p.Microbatches)
	if size := p.Config.Parallel.MicrobatchSize; size%2 == 0 && err == nil {
		less := t
		less.Layers = slices.Clone(t.Layers)
		for l, dense := range Dense(half.Config).Layers {
			bytes := &less.Layers[l].Bytes
			bytes.Activations, bytes.Held, bytes.Recomputed = dense.Bytes.Activations, dense.Bytes.Held, dense.Bytes.Recomputed
		}
		add(fmt.Sprintf("parallel.microbatch_size = %d and parallel.microbatches = %d", size/2, 2*p.Microbatches), half, nil, less)
	}
	if stages := 2 * p.Mesh.Stages; stages*s.Map.Chunks <= len(t.Layers) {
		double, err := p.Resize(stages, p.Microbatches)
		add(fmt.Sprintf("parallel.stages = %d", stages), double, err, t)
	}
	return list
}
