package policy

import (
	"math"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
)

const (
	// draws is how many possible true costs are drawn to find the error of a gain.
	draws = 16
	// certainty is how many standard deviations a gain must be above zero. Two would be too
	// few: one layout sees many decisions, and each takes the best of many cuts for the
	// same noise.
	certainty = 3
	// surelySaved is the least Gain.Least of a move (see plan.WorthMoving).
	surelySaved = 0.005
)

// estimateGain returns what a layout of as many stages saves against the present one. Where
// ranks may have been disturbed, Least holds with and without the disturbance.
func (b *balancer) estimateGain(next layout.Layout) plan.Gain {
	g := plan.Gain{Expected: 1 - b.now.Seconds(next)/b.now.PresentSeconds()}
	g.Least = g.Expected
	if b.now.costs.Sure() || math.IsNaN(g.Expected) || g.Expected < plan.WorthMoving {
		return g
	}
	g.Least = min(g.Expected, b.leastGain(b.now.costs, next))
	if b.now.costs.Doubt != nil {
		g.Least = min(g.Least, b.leastGain(b.now.costs.Undisturbed(), next))
	}
	return g
}

// leastGain returns a lower bound of what a layout saves, given the errors of the costs. Both
// layouts are simulated on the same draws, so that noise in layers that stay cancels.
func (b *balancer) leastGain(costs cost.Estimate, next layout.Layout) float64 {
	mean, margin := overDraws(costs, func(t cost.Table) float64 {
		s := b.problem.Step(t, b.now.Present)
		return 1 - s.Seconds(next)/s.PresentSeconds()
	})
	return mean - margin
}

// overDraws returns the mean of a quantity over draws of the costs, and a margin of certainty
// standard deviations.
func overDraws(costs cost.Estimate, quantity func(cost.Table) float64) (mean, margin float64) {
	sum, squares := 0.0, 0.0
	for i := range draws {
		x := quantity(costs.Draw(uint64(i)))
		sum, squares = sum+x, squares+x*x
	}
	mean = sum / draws
	return mean, certainty * math.Sqrt(max(0, squares/draws-mean*mean)*draws/(draws-1))
}

// acceptIfWorth returns the next layout if the move surely pays. Else it returns the present
// cuts with another schedule, if that follows from costs and surely pays. Else it returns
// the present layout. It accepts without a look layouts of other stages, those that memory
// needs, and moves that do not balance time.
func (b *balancer) acceptIfWorth(next layout.Layout, why *plan.Reason) (layout.Layout, error) {
	s, present := b.now, b.now.Present
	if next.Equal(present) {
		why.Kept = plan.KeptBest
		return present, nil
	}
	moves := !next.Cuts.Equal(present.Cuts)
	if next.Stages() != present.Stages() || !s.CutsFit(present.Cuts) || !s.Fits(present) || moves && s.By != balance.ByTime {
		return next, nil
	}
	why.Gain = b.estimateGain(next)
	switch saves := why.Gain.Least * s.PresentSeconds() * horizon; {
	case math.IsNaN(why.Gain.Expected) || why.Gain.Expected < plan.WorthMoving:
		why.Kept = plan.KeptBest
	case why.Gain.Least < surelySaved:
		why.Kept = plan.KeptUncertain
	case moves && saves < b.movePrice(next):
		why.Kept = plan.KeptPrice
	default:
		why.Kept = ""
		return next, nil
	}
	if !moves || !s.Adapts() {
		return present, nil
	}
	stay := *why
	next, err := b.acceptIfWorth(s.Layout(present.Cuts), why)
	if err == nil && next.Equal(present) {
		*why = stay // why layers do, not why their order does
	}
	return next, err
}

// movePrice returns the seconds for which a move is expected to stop the stages: those of
// earlier moves or, before the first, the bytes divided by the bandwidth.
func (b *balancer) movePrice(next layout.Layout) float64 {
	if b.Price > 0 {
		return b.Price
	}
	bytes, behind := int64(0), b.now.OptimizerCanFollow(next)
	for _, l := range b.now.Present.Owners().Moved(next.Owners()) {
		bytes += b.now.Costs.Layers[l].Bytes.Parameters
		if !behind {
			bytes += b.now.Costs.Layers[l].Bytes.Optimizer
		}
	}
	return b.sending(bytes)
}

// sending returns the seconds in which a rank sends the given bytes over the slowest link.
func (b *balancer) sending(bytes int64) float64 {
	if bandwidth := b.problem.Network.Bandwidth(); bandwidth > 0 {
		return float64(bytes) / bandwidth
	}
	return 0
}
