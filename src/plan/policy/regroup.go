package policy

import (
	"dynmo/src/cost"
	"dynmo/src/plan/search"
)

// fewestPerStage is the fewest microbatches for each stage. With fewer, stages wait too long
// for each other (Huang et al. 2019, GPipe).
const fewestPerStage = 4

// mayRegroup reports whether packing may make microbatches larger. A run that starts again to
// release nodes begins with the microbatches of the settings.
func (b *balancer) mayRegroup() bool {
	c := b.planner.Config
	return c.Repack.Microbatches == "adapt" && c.Elastic.Release != "restart"
}

// regroupCosts converts costs of the present microbatches to the microbatches of a planner.
func (b *balancer) regroupCosts(p *search.Planner, t cost.Table) cost.Table {
	return t.Regroup(b.planner.Microbatches, p.Microbatches)
}

// tryFewerMicrobatches returns the candidate with the fewest microbatches of the same samples
// that fits the memory and is fast enough. It has as many stages as the candidate found, and
// is found itself if no other will do. try makes a candidate of a number of microbatches.
func (b *balancer) tryFewerMicrobatches(found candidate, try func(microbatches int) (candidate, error), fast func(candidate) bool) (candidate, error) {
	if !b.mayRegroup() {
		return found, nil
	}
	present := b.planner.Microbatches
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
