package policy

import (
	"math"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
)

// Gain is the share of a step that another layout saves.
type Gain struct {
	Expected float64 `json:"expected"` // on the costs as they are estimated
	Least    float64 `json:"least"`    // that it saves whatever the true costs are, as far as can be told
}

const (
	// draws is how many chains of costs that could be the true ones a gain is tried on.
	draws = 16
	// certainty is how many standard deviations of the gain must lie between it and
	// nothing. A decision is one of many on the same layout, and the cuts it weighs are
	// the best of many on the same noise, so that two would be too few.
	certainty = 3
	// WorthMoving is the share of a step that another layout is expected to save, or it
	// is not worth the memory that moving touches; surelySaved is what of it must be certain.
	WorthMoving, surelySaved = 0.01, 0.005
)

// estimateGain returns what a layout saves against the present one, of equally many stages:
// the least, whether doubts are right or not.
func (b *balancer) estimateGain(present, next layout.Layout) Gain {
	g := Gain{Expected: 1 - b.planner.Seconds(b.costs.Table, next)/b.presentSeconds()}
	g.Least = g.Expected
	if b.costs.Sure() || math.IsNaN(g.Expected) || g.Expected < WorthMoving {
		return g
	}
	g.Least = min(g.Expected, b.leastGain(b.costs, present, next))
	if b.costs.Doubt != nil {
		g.Least = min(g.Least, b.leastGain(b.costs.Undisturbed(), present, next))
	}
	return g
}

// leastGain returns what a layout saves at least, as far as the deviations of costs tell.
// It is tried on draws of the costs: both layouts on the same ones, so that noise in
// layers that stay cancels.
func (b *balancer) leastGain(costs cost.Estimate, present, next layout.Layout) float64 {
	mean, margin := overDraws(costs, func(t cost.Table) float64 {
		return 1 - b.planner.Seconds(t, next)/b.planner.Seconds(t, present)
	})
	return mean - margin
}

// overDraws returns the mean of a quantity over draws of the costs, and the margin within
// which it is certain: that many standard deviations.
func overDraws(costs cost.Estimate, quantity func(cost.Table) float64) (mean, margin float64) {
	sum, squares := 0.0, 0.0
	for i := range draws {
		x := quantity(costs.Draw(uint64(i)))
		sum, squares = sum+x, squares+x*x
	}
	mean = sum / draws
	return mean, certainty * math.Sqrt(max(0, squares/draws-mean*mean)*draws/(draws-1))
}

// acceptIfWorth returns the next layout if it is surely worth moving to; else, where the
// schedule follows from costs, the present cuts with the order that suits them if
// that is; else the present layout. Layouts of fewer stages, those that memory
// needs and those that are not balanced by time are not weighed.
func (b *balancer) acceptIfWorth(present, next layout.Layout, why *Reason) (layout.Layout, error) {
	p := b.planner
	if next.Equal(present) {
		why.Kept = KeptBest
		return present, nil
	}
	moves := !next.Cuts.Equal(present.Cuts)
	if next.Stages() != present.Stages() || !p.CutsFit(b.costs.Table, present.Cuts) ||
		!p.Fits(b.costs.Table, present) || moves && p.By != balance.ByTime {
		return next, nil
	}
	why.Gain = b.estimateGain(present, next)
	switch saves := why.Gain.Least * b.presentSeconds() * horizon; {
	case math.IsNaN(why.Gain.Expected) || why.Gain.Expected < WorthMoving:
		why.Kept = KeptBest
	case why.Gain.Least < surelySaved:
		why.Kept = KeptUncertain
	case moves && saves < b.movePrice(present, next):
		why.Kept = KeptPrice
	default:
		why.Kept = ""
		return next, nil
	}
	if !moves || !p.Adapts() {
		return present, nil
	}
	stay := *why
	next, err := b.acceptIfWorth(present, p.Layout(b.costs.Table, present.Cuts), why)
	if err == nil && next.Equal(present) {
		*why = stay // why layers do, not why their order does
	}
	return next, err
}

// movePrice returns the seconds for which a move is expected to stop the stages: as the last ones did,
// and before the first the bytes over the link.
func (b *balancer) movePrice(present, next layout.Layout) float64 {
	if b.Price > 0 {
		return b.Price
	}
	bandwidth := b.planner.Network.Bandwidth()
	if bandwidth <= 0 {
		return 0
	}
	bytes, behind := int64(0), b.planner.OptimizerCanFollow(b.costs.Table, present, next)
	for _, l := range present.Owners().Moved(next.Owners()) {
		bytes += b.costs.Layers[l].Bytes.Parameters
		if !behind {
			bytes += b.costs.Layers[l].Bytes.Optimizer
		}
	}
	return float64(bytes) / bandwidth
}
