package decisions

import (
	"fmt"
	"slices"
	"strconv"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/policy"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
)

// newest is the policy of commit 8a6fbfc, what others are compared with. It goes by
// the medians of the newest step alone, and moves layers whenever that predicts a
// faster step. It knows neither memory limits nor schedules that follow costs.
type newest struct {
	planner  *search.Planner
	settings config.Balance
	every    int // steps; 0: auto
	speeds   profile.Speeds
	since    int        // steps since the last decision
	gains    []float64  // auto: of the last steps since then, at most window
	stays    cost.Table // auto: the costs on which it was decided to leave layers where they are
}

const (
	// minGain and window are those of auto: it decides once the median gain of so many
	// steps is above. (It also waited until what was lost exceeded the cost of
	// balancing, which takes no time here.)
	minGain = 0.01
	window  = 5
	// enough is how many layers must have moved between two stages before they told of
	// their speeds.
	enough = 2
	// horizon is how many steps the price of a move was spread over in auto.
	horizon = 100
)

func newNewest(p *search.Planner, c config.Config) (policy.Balancer, error) {
	b := &newest{planner: p, settings: c.Balance, speeds: profile.Speeds{Enough: enough}}
	if c.Balance.Every == "auto" {
		return b, nil
	}
	var err error
	if b.every, err = strconv.Atoi(c.Balance.Every); err != nil {
		return nil, fmt.Errorf("balance.every: %w", err)
	}
	return b, nil
}

// Decide is policy.Balancer's.
func (b *newest) Decide(m profile.Measurement, present layout.Layout) (layout.Layout, policy.Reason, error) {
	t := b.table(m, present)
	problem := balance.New(t, balance.ByTime, present.Stages(), nil, 0)
	b.since++
	if due, err := b.due(t, problem, present); err != nil || !due {
		return present, policy.Reason{}, err
	}
	b.since, b.gains = 0, nil
	cuts, err := b.choose(t, problem, present.Cuts)
	if b.stays = t; !cuts.Equal(present.Cuts) {
		b.stays = cost.Table{}
	}
	return present.With(cuts, present.Schedule), policy.Reason{Decided: true}, err
}

// choose returns the cuts that the balancer of the settings finds, if they predict a
// faster step than the present ones.
func (b *newest) choose(t cost.Table, problem balance.Problem, present partition.Partition) (partition.Partition, error) {
	cuts, err := b.find(t, problem, present)
	if err != nil || b.planner.Seconds(t, b.planner.Layout(t, cuts)) >= b.planner.Seconds(t, b.planner.Layout(t, present)) {
		return present, err
	}
	return cuts, nil
}

// table returns what the step says that layers cost on a rank of speed 1, and how many
// times slower the stages' ranks are.
func (b *newest) table(m profile.Measurement, present layout.Layout) cost.Table {
	t := m.Table
	t.Slow, t.Layers = nil, slices.Clone(t.Layers)
	for l := range t.Layers {
		t.Layers[l] = t.Layers[l].With(medians(m.Samples[l]))
	}
	if m.Changed {
		b.speeds.Changed()
	}
	owners := present.Owners()
	b.speeds.Observe(t.Seconds(), owners)
	if t.Slow = b.speeds.Slow(present.Stages()); t.Slow == nil {
		return t
	}
	for l := range t.Layers {
		factor := t.Slow[owners[l]]
		t.Layers[l].Forward /= factor
		t.Layers[l].BackwardInput /= factor
		t.Layers[l].BackwardWeight /= factor
	}
	return t
}

// due reports whether to decide after this step.
func (b *newest) due(t cost.Table, problem balance.Problem, present layout.Layout) (bool, error) {
	if b.every > 0 {
		return b.since >= b.every, nil
	}
	gain := 0.0
	if !t.Equal(b.stays) {
		best, err := balance.Partition(problem)
		if err != nil {
			return false, err
		}
		gain = 1 - b.planner.Seconds(t, b.planner.Layout(t, best.Cuts))/b.planner.Seconds(t, b.planner.Layout(t, present.Cuts))
	}
	b.gains = append(b.gains, gain)
	b.gains = b.gains[max(0, len(b.gains)-window):]
	return len(b.gains) == window && slices.Sorted(slices.Values(b.gains))[window/2] > minGain, nil
}

// find returns the cuts that the balancer of the settings finds.
func (b *newest) find(t cost.Table, problem balance.Problem, present partition.Partition) (partition.Partition, error) {
	if b.settings.Kind == diffusion {
		r, _, err := balance.Diffusion(problem, present, balance.DiffusionOptions{Gamma: b.settings.Gamma, MaxRounds: b.settings.MaxRounds})
		return r.Cuts, err
	}
	steps := b.every
	if steps == 0 {
		steps = horizon
	}
	r, err := balance.FewestMoves(problem, present, float64(steps*b.planner.Microbatches), b.planner.Network.Bandwidth())
	if err != nil {
		return nil, err
	}
	return b.planner.Improve(t, r.Cuts).Cuts, nil
}
