package policy

import (
	"errors"
	"fmt"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan/search"
)

// Packing is what a look at fewer stages came to.
type Packing struct {
	Kind       string  `json:"kind"`           // as repack.kind has it
	Stages     int     `json:"stages"`         // that are taken; else those that came nearest
	Throughput float64 `json:"throughput"`     // predicted on them, as a share of the dense model's; 0: not known
	Exact      bool    `json:"exact"`          // losses stay the same, bit for bit
	Kept       Kept    `json:"kept,omitempty"` // why the present stages stay; "" if fewer are taken
}

// packing is what a balancer knows of its looks at fewer stages, as checkpoints keep it.
type packing struct {
	Looks int     `json:"looks,omitempty"` // since the model or its stages changed, that packed nothing
	Early int     `json:"early,omitempty"` // of them, first ones at costs that every step makes surer: they lengthen no wait
	Wait  int     `json:"wait,omitempty"`  // steps until the next look
	Bound float64 `json:"bound,omitempty"` // of the last look: no step on fewer stages takes less
	Found bool    `json:"found,omitempty"` // the last look would have packed, were costs sure
}

const (
	// longestWait is the most steps between two looks, each of which takes as long as a
	// decision to move.
	longestWait = 1024
	// fallen is the share of the last look's bound below which there is another before
	// its time.
	fallen = 0.95
)

// considerPacking looks whether the model is to be packed onto fewer stages, if it is time to. The
// answer is nil if there was no look. What is packed stays so: unless costs are sure, two
// looks have to agree.
func (b *balancer) considerPacking(present layout.Layout) (layout.Layout, *Packing, error) {
	if !b.isTimeToLook(present) {
		return present, nil, nil
	}
	var next layout.Layout
	var found *Packing
	var err error
	if b.memory.Reference.Seen < wellKnown { // the model has not changed: noise of its costs is in both
		if err = b.measureReference(); err != nil {
			return present, nil, err
		}
	}
	switch b.planner.Config.Repack.Kind {
	case "sustain":
		next, found, err = b.sustain(present)
	case "first-fit":
		next, found, err = b.firstFit(present)
	}
	if err != nil || found == nil {
		return present, nil, err
	}
	if once := !b.Found; found.Kept != "" || once && !b.costs.Sure() {
		if b.Found = found.Kept == ""; b.Found {
			found.Kept = KeptUncertain
		}
		b.Looks++
		if found.Kept == KeptUncertain && b.Early < looksUntilSure {
			b.Early++
		}
		b.Wait = min(1<<min(b.Looks-b.Early, 30), longestWait) - 1
		return present, found, nil
	}
	return next, found, nil
}

// isTimeToLook reports whether to look after this step: the dense model and what layers cost now
// are known, fewer stages could do, and the last look is as many steps ago as there were
// before it, or layers have become cheaper since.
func (b *balancer) isTimeToLook(present layout.Layout) bool {
	if b.Fresh {
		b.packing = packing{}
	}
	if !b.planner.Config.Packs() || b.Probation.Refused || b.memory.Reference.Seconds == 0 || !b.costs.Known() || b.Fresh && !b.costs.Sure() ||
		present.Stages() <= b.planner.Config.Repack.Stages {
		return false
	}
	bound := b.leastSeconds(present.Stages() - 1)
	if b.Wait > 0 && !(bound < b.Bound*fallen) {
		b.Wait--
		return false
	}
	if b.planner.Config.Repack.Kind == "sustain" && bound > b.allowedSeconds() {
		return false
	}
	b.Bound = bound
	return true
}

// allowedSeconds returns the seconds that a step may take on fewer stages.
func (b *balancer) allowedSeconds() float64 {
	return b.memory.Reference.Seconds / (1 - b.planner.Config.Repack.Tolerance)
}

// leastSeconds returns the seconds that no step on so many stages beats.
func (b *balancer) leastSeconds(stages int) float64 {
	sum, most := 0.0, 0.0
	for _, l := range b.costs.Layers {
		x := l.Seconds()
		sum, most = sum+x, max(most, x)
	}
	return float64(b.planner.Microbatches) * max(sum/float64(stages), most)
}

// candidate is a layout of fewer stages that was looked for.
type candidate struct {
	layout.Layout
	planner *search.Planner
	seconds float64 // predicted, of a step
	allowed bool    // the schedule exists on these stages
	fits    bool    // memory suffices; only then is there a layout
}

// sustain returns the layout with the fewest stages whose predicted throughput stays within
// the settings' tolerance of the dense model's; where whole nodes are to come free, of
// those that need as few nodes the fastest. Numbers of stages that the schedule does not
// allow are passed over. One that may be too slow, as far as costs are uncertain, is waited
// for until they get no surer; then it is passed over.
func (b *balancer) sustain(present layout.Layout) (layout.Layout, *Packing, error) {
	why := &Packing{Kind: "sustain", Exact: true, Kept: keptThroughput}
	limit := b.allowedSeconds()
	for stages := b.planner.Config.Repack.Stages; stages < present.Stages(); stages++ {
		if b.leastSeconds(stages) > limit {
			continue
		}
		c, err := b.bestOn(stages, b.planner.Microbatches)
		if err != nil {
			return present, nil, err
		}
		if !c.allowed {
			continue
		}
		if !c.fits {
			why.Stages, why.Kept = stages, keptMemory
			continue
		}
		why.Stages, why.Throughput = stages, b.memory.Reference.Seconds/c.seconds
		if why.Kept = keptThroughput; c.seconds > limit {
			continue
		}
		if !b.isSurelyWithin(c, limit) {
			if why.Kept = KeptUncertain; b.Looks < looksUntilSure {
				return present, why, nil
			}
			continue
		}
		return b.preferWholeNodes(present, c, why)
	}
	if why.Stages == 0 {
		return present, nil, nil // the schedule allows no fewer
	}
	return present, why, nil
}

// looksUntilSure is how many looks at unchanged costs it takes until they get no surer.
const looksUntilSure = 6

// bestOn returns the best layout of a number of stages and of microbatches of the same
// samples.
func (b *balancer) bestOn(stages, microbatches int) (candidate, error) {
	p, err := b.planner.Resize(stages, microbatches)
	if err != nil {
		return candidate{}, nil
	}
	t := b.regroupCosts(p, b.costs.Table)
	l, err := p.BalancedLayout(t)
	if _, full := errors.AsType[*balance.MemoryError](err); full {
		return candidate{allowed: true}, nil
	}
	if err != nil {
		return candidate{}, err
	}
	return candidate{l, p, p.Seconds(t, l), true, true}, nil
}

// isSurelyWithin reports whether a step takes no longer than a limit, whatever the true costs are
// as far as can be told.
func (b *balancer) isSurelyWithin(c candidate, limit float64) bool {
	if b.costs.Sure() {
		return true
	}
	mean, margin := overDraws(b.costs, func(t cost.Table) float64 {
		return c.planner.Seconds(b.regroupCosts(c.planner, t), c.Layout) / limit
	})
	return mean+margin <= 1
}

// preferWholeNodes returns a layout that was found, or where whole nodes are to come free the fastest
// that needs no more of them.
func (b *balancer) preferWholeNodes(present layout.Layout, c candidate, why *Packing) (layout.Layout, *Packing, error) {
	if b.wholeNodes() {
		nodes := b.fewestNodes(present, c.Mesh.Size())
		if nodes >= b.fewestNodes(present, present.Mesh.Size()) {
			why.Kept = keptNodes
			return present, why, nil
		}
		for stages := c.Stages() + 1; stages < present.Stages() && b.fewestNodes(present, stages*present.Mesh.Replicas) == nodes; stages++ {
			other, err := b.bestOn(stages, b.planner.Microbatches)
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
	why.Kept, why.Stages, why.Throughput = "", c.Stages(), b.memory.Reference.Seconds/c.seconds
	why.Exact = c.Schedule.Microbatches == present.Schedule.Microbatches
	return b.placeOnFewestNodes(present, c.Layout), why, nil
}

// placeOnFewestNodes returns a layout of fewer stages on the ranks that stay: those of the fewest nodes,
// to which the fewest bytes move.
func (b *balancer) placeOnFewestNodes(present, next layout.Layout) layout.Layout {
	bytes := make([]int64, len(b.costs.Layers))
	for l, layer := range b.costs.Layers {
		bytes[l] = layer.Bytes.Parameters + layer.Bytes.Optimizer
	}
	next.Ranks = layout.Compact(present, next, b.Nodes, bytes)
	return next
}

// packOnto returns the best layout of so many stages.
func (b *balancer) packOnto(stages int) (layout.Layout, error) {
	p, err := b.planner.Resize(stages, b.planner.Microbatches)
	if err != nil {
		return layout.Layout{}, err
	}
	cuts, err := p.BestCuts(b.costs.Table)
	if err != nil {
		return layout.Layout{}, err
	}
	return p.Layout(b.costs.Table, cuts), nil
}

// forgetStages forgets what holds for the stages before a packing alone.
func (b *balancer) forgetStages() {
	b.Probation, b.packing = probation{Fresh: true}, packing{}
	b.aside, b.searched = sought{}, sought{}
	b.memory.Reference.Seen = wellKnown // which is of the stages before
	b.trigger.Count.Steps, b.trigger.Count.Excess = 0, 0
}

// Why says why the model was not packed.
func (p Packing) Explain(s config.Repack) string {
	stages := fmt.Sprintf("%d stages", p.Stages)
	if p.Stages == 1 {
		stages = "1 stage"
	}
	text := fmt.Sprintf("%s would reach %.1f %% of the dense model's throughput", stages, 100*p.Throughput)
	switch p.Kept {
	case keptLoad:
		return fmt.Sprintf("the load is not surely below %v of the dense model's", s.Below)
	case keptMemory:
		return fmt.Sprintf("ranks of %s would lack memory", stages)
	case keptNodes:
		return text + ", but no node would come free"
	case KeptUncertain:
		return text + ", which may be noise"
	}
	return fmt.Sprintf("%s, wanted %.1f %%", text, 100*(1-s.Tolerance))
}
