package policy

import (
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
	"dynmo/src/piece"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/sim"
)

// place changes the pieces of a layout to the kind's proposal, if that surely pays. The situation
// then has costs that are scaled to the time of layers with the new pieces. It returns nil where pieces stay. The messages
// of copies in every step count as time of the step; the stage that sends most counts. Owners move
// too if that pays for their bytes within horizon steps.
func (b *balancer) place(m profile.Measurement, pieces *piece.Assignment) *plan.Placed {
	if b.Placing == nil {
		return nil
	}
	b.Placing.Observe(m.Counts)
	if !b.now.costs.Known() {
		return nil
	}
	present := b.now.Present
	owners := present.Owners()
	q := dynamic.Question{Present: *pieces, Node: func(layer, replica int) int {
		return b.Nodes[present.World(present.Mesh.Rank(owners[layer], replica))]
	}}
	var best choice
	for _, q.Owners = range []bool{false, true} {
		c := b.weigh(b.Placing.Propose(q), m.Fixed, *pieces)
		more := c.saved - best.saved
		if more > plan.WorthMoving*c.before && more*horizon > b.sending(c.Moved) {
			best = c
		}
		if best.proposals != nil && best.Then <= best.Bound*nearBound {
			break
		}
	}
	if best.proposals == nil {
		return nil
	}
	*pieces = b.Placing.Take(*pieces, best.proposals)
	placed := b.now.costs
	placed.Table = best.costs
	b.face(placed, present)
	return &best.Placed
}

// nearBound is how far above the bound the fullest replica may be before owners are considered.
const nearBound = 1.05

// choice is proposals and what a step takes with them.
type choice struct {
	plan.Placed
	proposals     []dynamic.Proposal
	costs         cost.Table
	before, saved float64 // seconds of a step with what copies send, as it is; how many fewer it takes
}

// weigh predicts a step with proposals. fixed is by layer the share of its seconds that does not
// follow its work, nil: none.
func (b *balancer) weigh(list []dynamic.Proposal, fixed []float64, pieces piece.Assignment) choice {
	if len(list) == 0 {
		return choice{}
	}
	c, present := choice{proposals: list, costs: b.now.Costs}, b.now.Present
	c.Layers = len(list)
	c.costs.Layers = append([]cost.Layer(nil), c.costs.Layers...)
	for _, p := range list {
		share := 1.0
		if fixed != nil {
			share -= fixed[p.Layer]
		}
		l := &c.costs.Layers[p.Layer]
		*l = l.WithSeconds(l.Stage().Scale((1 + share*(p.Then-1)) / (1 + share*(p.Now-1))))
		n := float64(len(list))
		c.Now, c.Then, c.Bound = c.Now+p.Now/n, c.Then+p.Then/n, c.Bound+p.Bound/n
		c.Moved += p.Moved
	}
	_, now := Copied(b.Placing, b.problem.Network, present, pieces)
	bytes, then := Copied(b.Placing, b.problem.Network, present, b.Placing.Take(pieces, list))
	c.Copied, c.before = bytes, b.now.PresentSeconds()+now
	c.saved = c.before - b.problem.Step(c.costs, present).PresentSeconds() - then
	c.Gain = c.saved / c.before
	return c
}

// Copied returns the bytes that the busiest rank of a layout sends or receives in a step because pieces
// have copies: weights to the copies, gradients back. It adds up all layers of a stage. seconds is the
// time of these bytes on the stage where they take longest: replicas of a stage send over the slowest
// link between two of them.
func Copied(p dynamic.Placing, n sim.Network, l layout.Layout, pieces piece.Assignment) (bytes int64, seconds float64) {
	stages := make([]int64, l.Stages())
	owners := l.Owners()
	for layer, of := range p.Copied(pieces) {
		stages[owners[layer]] += of
	}
	for stage, of := range stages {
		bytes = max(bytes, of)
		for replica := range l.Mesh.Replicas {
			link := n.Link(l.World(l.Mesh.Rank(stage, 0)), l.World(l.Mesh.Rank(stage, replica)))
			if of > 0 && link.Bandwidth > 0 {
				seconds = max(seconds, float64(of)/link.Bandwidth)
			}
		}
	}
	return bytes, seconds
}
