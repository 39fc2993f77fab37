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
	add := func(sets string, p *Problem, err error, t cost.Table) {
		if err != nil || p.Config.Validate() != nil {
			return
		}
		if least, err := p.Step(t, layout.Layout{}).leastLimit(); err == nil {
			list = append(list, remedy{sets, least})
		}
	}
	other := func(sets string, change func(*config.Config)) {
		c := s.Config
		change(&c)
		p, err := New(c, s.Network, s.fixed)
		add(sets, p, err, s.Costs)
	}
	less := func(sets string, change func(*config.Config)) {
		c := s.Config
		if change(&c); s.fixed == nil || c.Validate() != nil { // what is not the dense model's is not known
			return
		}
		p, err := New(c, s.Network, s.fixed)
		suited, _ := Suit(s.Costs, Shape(s.Config), c)
		add(sets, p, err, suited)
	}
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1} {
		if kind != s.Kind {
			other(fmt.Sprintf("schedule.kind = %q", kind), func(c *config.Config) { c.Schedule.Kind = string(kind) })
		}
	}
	twice := "plan"
	if s.Config.Balance.Kind == "diffusion" {
		twice = "block"
	}
	recomputes, shard := twice == s.Config.Model.Recompute, s.Mesh.Replicas > 1 && !s.Config.Optimizer.Shard
	if !recomputes {
		less(fmt.Sprintf("model.recompute = %q", twice), func(c *config.Config) { c.Model.Recompute = twice })
	}
	if shard {
		less("optimizer.shard = true", func(c *config.Config) { c.Optimizer.Shard = true })
	}
	if shard && !recomputes {
		less(fmt.Sprintf("optimizer.shard = true and model.recompute = %q", twice), func(c *config.Config) { c.Optimizer.Shard, c.Model.Recompute = true, twice })
	}
	if set, c := lean(s.Config); set != "" {
		less(set, func(changed *config.Config) { *changed = c })
	}
	if !s.Config.Balance.Moves() {
		other(`balance.kind = "partition"`, func(c *config.Config) { c.Balance.Kind = "partition" })
	}
	half, err := s.Problem.Resize(s.Mesh.Stages, 2*s.Microbatches)
	if size := s.Config.Parallel.MicrobatchSize; size%2 == 0 && err == nil {
		t := s.Costs
		t.Layers = slices.Clone(t.Layers)
		for l, dense := range Dense(half.Config).Layers {
			bytes := &t.Layers[l].Bytes
			bytes.Activations, bytes.Held, bytes.Recomputed = dense.Bytes.Activations, dense.Bytes.Held, dense.Bytes.Recomputed
		}
		add(fmt.Sprintf("parallel.microbatch_size = %d and parallel.microbatches = %d", size/2, 2*s.Microbatches), half, nil, t)
	}
	if stages := 2 * s.Mesh.Stages; stages*s.Map.Chunks <= len(s.Costs.Layers) {
		double, err := s.Problem.Resize(stages, s.Microbatches)
		add(fmt.Sprintf("parallel.stages = %d", stages), double, err, s.Costs)
	}
	return list
}
