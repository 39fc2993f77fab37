package policy

import (
	"dynmo/src/cost"
	"dynmo/src/plan/search"
)

// fewestPerStage is how many microbatches there are at least for each stage: with fewer a
// pipeline's stages wait for each other for too long (Huang et al. 2019, GPipe).
const fewestPerStage = 4

// mayRegroup reports whether the settings let microbatches become larger with a packing. A
// run that is started again for it begins with theirs.
func (b *balancer) mayRegroup() bool {
	c := b.planner.Config
	return c.Repack.Microbatches == "adapt" && c.Elastic.Release != "restart"
}

// regroupCosts returns costs of the present microbatches as those of a planner have them.
func (b *balancer) regroupCosts(p *search.Planner, t cost.Table) cost.Table {
	return t.Regroup(b.planner.Microbatches, p.Microbatches)
}

// tryFewerMicrobatches returns the candidate with the fewest microbatches of the same samples, on as
// many stages as one that was found, for which memory suffices and that is fast enough: that
// one if there is none. try makes a candidate of a number of microbatches.
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
