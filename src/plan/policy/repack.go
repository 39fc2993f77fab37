package policy

import (
	"errors"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
)

// packing is what a balancer remembers of its looks for fewer stages. Checkpoints contain it.
type packing struct {
	Looks int     `json:"looks,omitempty"` // looks since the model or its stages last changed
	Early int     `json:"early,omitempty"` // those of Looks at costs that still get more certain: they do not lengthen the wait
	Wait  int     `json:"wait,omitempty"`  // steps until the next look
	Bound float64 `json:"bound,omitempty"` // leastSeconds of one stage fewer at the last look
	Found bool    `json:"found,omitempty"` // the last look found a packing, but costs were uncertain
}

const (
	// longestWait is the most steps between two looks. A look takes as long as a decision to
	// move layers.
	longestWait = 1024
	// fallen is the share of Bound below which a look does not wait.
	fallen = 0.95
)

// considerPacking looks for a layout of fewer stages if a look is due. The packing is nil if
// there was no look. Packing is final, so two looks must agree unless costs are certain.
func (b *balancer) considerPacking() (next layout.Layout, found *plan.Packing, err error) {
	present := b.now.Present
	if !b.isTimeToLook() {
		return present, nil, nil
	}
	if b.Reference.Seen < plan.WellKnown { // the model has not changed: noise of its costs is in both
		if err := b.measureReference(); err != nil {
			return present, nil, err
		}
	}
	switch b.problem.Config.Repack.Kind {
	case "sustain":
		next, found, err = b.sustain()
	case "first-fit":
		next, found, err = b.firstFit()
	}
	if err != nil || found == nil {
		return present, nil, err
	}
	if once := !b.Found; found.Kept != "" || once && !b.now.costs.Sure() {
		if b.Found = found.Kept == ""; b.Found {
			found.Kept = plan.KeptUncertain
		}
		b.Looks++
		if found.Kept == plan.KeptUncertain && b.Early < looksUntilSure {
			b.Early++
		}
		b.Wait = min(1<<min(b.Looks-b.Early, 30), longestWait) - 1
		return present, found, nil
	}
	return next, found, nil
}

// isTimeToLook reports whether to look for fewer stages after this step. The dense model and
// the present costs must be known, and fewer stages must not be impossible. The wait between
// two looks doubles each time, unless layers become cheaper.
func (b *balancer) isTimeToLook() bool {
	if b.Fresh {
		b.packing = packing{}
	}
	c, stages := b.problem.Config, b.problem.Mesh.Stages
	if !c.Packs() || b.Probation.Refused || b.Reference.Seconds == 0 || !b.now.costs.Known() || b.Fresh && !b.now.costs.Sure() || stages <= c.Repack.Stages {
		return false
	}
	bound := b.leastSeconds(stages - 1)
	if b.Wait > 0 && !(bound < b.Bound*fallen) {
		b.Wait--
		return false
	}
	if c.Repack.Kind == "sustain" && bound > b.allowedSeconds() {
		return false
	}
	b.Bound = bound
	return true
}

// allowedSeconds returns the most seconds that a step may take on fewer stages.
func (b *balancer) allowedSeconds() float64 {
	return b.Reference.Seconds / (1 - b.problem.Config.Repack.Tolerance)
}

// leastSeconds returns a lower bound of the seconds of a step on a number of stages.
func (b *balancer) leastSeconds(stages int) float64 {
	sum, most := 0.0, 0.0
	for _, l := range b.now.Costs.Layers {
		x := l.Seconds()
		sum, most = sum+x, max(most, x)
	}
	return float64(b.problem.Microbatches) * max(sum/float64(stages), most)
}

// candidate is a layout of fewer stages that was looked for.
type candidate struct {
	layout.Layout
	step    *search.Step
	seconds float64 // predicted, of a step
	allowed bool    // the schedule exists on these stages
	fits    bool    // memory suffices; only then is there a layout
}

// sustain returns the layout with the fewest stages whose predicted throughput stays within
// the settings' tolerance of the dense model's. It skips numbers of stages that the schedule
// does not allow. If costs are too uncertain for a number of stages it waits for better ones;
// after looksUntilSure looks it skips that number.
func (b *balancer) sustain() (layout.Layout, *plan.Packing, error) {
	present, why := b.now.Present, &plan.Packing{Kind: "sustain", Exact: true, Kept: plan.KeptThroughput}
	limit := b.allowedSeconds()
	for stages := b.problem.Config.Repack.Stages; stages < present.Stages(); stages++ {
		if b.leastSeconds(stages) > limit {
			continue
		}
		c, err := b.bestOn(stages, b.problem.Microbatches)
		if err != nil {
			return present, nil, err
		}
		if !c.allowed {
			continue
		}
		if !c.fits {
			why.Stages, why.Kept = stages, plan.KeptMemory
			continue
		}
		why.Stages, why.Throughput = stages, b.Reference.Seconds/c.seconds
		if why.Kept = plan.KeptThroughput; c.seconds > limit {
			continue
		}
		if !b.isSurelyWithin(c, limit) {
			if why.Kept = plan.KeptUncertain; b.Looks < looksUntilSure {
				return present, why, nil
			}
			continue
		}
		return b.preferWholeNodes(c, why)
	}
	if why.Stages == 0 {
		return present, nil, nil // the schedule allows no fewer
	}
	return present, why, nil
}

// looksUntilSure is the number of looks after which costs get no more certain.
const looksUntilSure = 6

// bestOn returns the best layout of a number of stages and of microbatches of the same
// samples.
func (b *balancer) bestOn(stages, microbatches int) (candidate, error) {
	s, err := b.now.Resize(stages, microbatches)
	if err != nil {
		return candidate{}, nil
	}
	l, err := s.BalancedLayout()
	if _, full := errors.AsType[*balance.MemoryError](err); full {
		return candidate{allowed: true}, nil
	}
	if err != nil {
		return candidate{}, err
	}
	return candidate{l, s, s.Seconds(l), true, true}, nil
}

// isSurelyWithin reports whether a step takes at most limit seconds, given the errors of the
// costs.
func (b *balancer) isSurelyWithin(c candidate, limit float64) bool {
	if b.now.costs.Sure() {
		return true
	}
	mean, margin := overDraws(b.now.costs, func(t cost.Table) float64 {
		return c.step.Step(t.Regroup(b.problem.Microbatches, c.step.Microbatches), c.step.Present).Seconds(c.Layout) / limit
	})
	return mean+margin <= 1
}

// preferWholeNodes returns the candidate that was found. Where whole nodes are to come free
// it returns the fastest candidate on as many nodes, and none if no node would come free.
func (b *balancer) preferWholeNodes(c candidate, why *plan.Packing) (layout.Layout, *plan.Packing, error) {
	present := b.now.Present
	if b.wholeNodes() {
		fewest := func(stages int) int { return layout.FewestNodes(present, stages*present.Mesh.Replicas, b.Nodes) }
		nodes := fewest(c.Stages())
		if nodes >= fewest(present.Stages()) {
			why.Kept = plan.KeptNodes
			return present, why, nil
		}
		for stages := c.Stages() + 1; stages < present.Stages() && fewest(stages) == nodes; stages++ {
			other, err := b.bestOn(stages, b.problem.Microbatches)
			if err != nil {
				return present, nil, err
			}
			if other.fits && other.seconds < c.seconds {
				c = other
			}
		}
	}
	stages, limit := c.Stages(), b.allowedSeconds()
	c, err := b.tryFewerMicrobatches(c, func(microbatches int) (candidate, error) { return b.bestOn(stages, microbatches) },
		func(c candidate) bool { return c.seconds <= limit && b.isSurelyWithin(c, limit) })
	if err != nil {
		return present, nil, err
	}
	next, why := b.packed(c, why)
	return next, why, nil
}

// packed returns the layout of a candidate, and why completed for the candidate. The ranks of the layout
// are those on the fewest nodes to which the fewest bytes move.
func (b *balancer) packed(c candidate, why *plan.Packing) (layout.Layout, *plan.Packing) {
	why.Kept, why.Stages, why.Throughput = "", c.Stages(), b.Reference.Seconds/c.seconds
	why.Exact = c.Schedule.Microbatches == b.now.Present.Schedule.Microbatches
	bytes := make([]int64, len(b.now.Costs.Layers))
	for l, layer := range b.now.Costs.Layers {
		bytes[l] = layer.Bytes.Parameters + layer.Bytes.Optimizer
	}
	c.Ranks = layout.Compact(b.now.Present, c.Layout, b.Nodes, bytes)
	return c.Layout, why
}

// packOnto returns the best layout of a number of stages that the user has set.
func (b *balancer) packOnto(stages int) (layout.Layout, error) {
	s, err := b.now.Resize(stages, b.problem.Microbatches)
	if err != nil {
		return layout.Layout{}, err
	}
	return s.BestInMap(s.Map)
}

// forgetStages drops what holds only for the stages before a packing.
func (b *balancer) forgetStages() {
	b.Probation, b.packing = probation{Fresh: true}, packing{}
	b.aside, b.searched = sought{}, sought{}
	b.Reference.Seen = plan.WellKnown // the reference belongs to the stages before
	b.trigger.Count.Steps, b.trigger.Count.Excess = 0, 0
}

// wholeNodes reports whether packing must free whole nodes rather than ranks.
func (b *balancer) wholeNodes() bool {
	c := b.problem.Config
	return c.Repack.Unit == "node" || c.Repack.Unit == "auto" && (c.Elastic.Release == "slurm" || c.Elastic.Release == "restart")
}

// fewestPerStage is the fewest microbatches for each stage. With fewer, stages wait too long
// for each other (Huang et al. 2019, GPipe).
const fewestPerStage = 4

// mayRegroup reports whether packing may make microbatches larger. A run that starts again to
// release nodes begins with the microbatches of the settings.
func (b *balancer) mayRegroup() bool {
	c := b.problem.Config
	return c.Repack.Microbatches == "adapt" && c.Elastic.Release != "restart"
}

// tryFewerMicrobatches returns the candidate with the fewest microbatches of the same samples
// that fits the memory and is fast enough. It has as many stages as the candidate found, and
// is found itself if no other will do. try makes a candidate of a number of microbatches.
func (b *balancer) tryFewerMicrobatches(found candidate, try func(microbatches int) (candidate, error), fast func(candidate) bool) (candidate, error) {
	if !b.mayRegroup() {
		return found, nil
	}
	present := b.problem.Microbatches
	for microbatches := fewestPerStage * found.Stages(); microbatches < present; microbatches++ {
		if present%microbatches != 0 {
			continue
		}
		c, err := try(microbatches)
		if err != nil {
			return c, err
		}
		if c.fits && fast(c) {
			return c, nil
		}
	}
	return found, nil
}
