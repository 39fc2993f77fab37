package experts

import (
	"dynmo/src/cost"
	"dynmo/src/dynamic/routing"
)

// Way is how the experts of a layer share its work in a step.
type Way int

const (
	// Equal is experts whose loads are all alike: what the others are compared with.
	Equal Way = iota
	// Fixed gives every expert room for as many tokens as the fullest of all layers and
	// microbatches has, and computes all of it: a capacity factor that drops nothing.
	Fixed
	// Adapted gives experts as much room as their tokens need, in every layer and microbatch
	// (Hwang et al. 2023, Tutel; no room at all is left empty here). Experts lie in their
	// order.
	Adapted
	// Placed is Adapted with as many experts on each rank, by their loads in the step before.
	Placed
	// Free is Placed with any number of experts on a rank.
	Free
)

// Ways are all, in their order.
var Ways = []Way{Equal, Fixed, Adapted, Placed, Free}

func (w Way) String() string {
	return [...]string{"equal loads", "fixed capacity", "adapted capacity", "placed, as many each", "placed freely"}[w]
}

// series returns what the chain costs in each step.
func (k *Case) series(w Way) cost.Series {
	var list cost.Series
	most := 1.0
	if w == Fixed {
		most = k.fullestOfAll()
	}
	for step := range steps {
		phase := cost.Phase{Step: step, Steps: 1, Table: k.chain, Factors: make([][]cost.Stage, len(k.chain.Layers))}
		if step > 0 {
			phase.Change = "moe"
		}
		for l, block := range k.block {
			if !k.shares[l] {
				continue
			}
			p := k.placement(w, block, step)
			for m := range microbatches {
				loads := k.routing.Loads(block, k.slot(step, m))
				fullest := most
				if w >= Adapted {
					fullest = p.Fullest(loads, k.Replicas)
				}
				phase.Factors[l] = append(phase.Factors[l], k.factor(l, loads, fullest))
			}
		}
		list = append(list, phase)
	}
	return list
}

// factor returns how many times its seconds a layer takes in a microbatch: its experts'
// those of the fullest rank; where a router lets tokens pass by, all of it their share.
func (k *Case) factor(l int, loads []uint16, fullest float64) cost.Stage {
	assigned := 0
	for _, n := range loads {
		assigned += int(n)
	}
	share := float64(assigned) / float64(k.routing.Top*k.routing.Tokens)
	all, mlp := k.chain.Layers[l].Stage(), k.experts
	times := func(all, mlp float64) float64 {
		if all == 0 {
			return 1
		}
		return share * (1 + mlp/all*(fullest-1))
	}
	return cost.Stage{Forward: times(all.Forward, mlp.Forward), Input: times(all.Input, mlp.Input), Weight: times(all.Weight, mlp.Weight)}
}

// slot returns the slot of the recording that a microbatch of a step has; they come again.
func (k *Case) slot(step, microbatch int) int {
	return (step*microbatches + microbatch) % k.routing.Slots
}

// placement returns where the experts of a block lie in a step.
func (k *Case) placement(w Way, block, step int) routing.Placement {
	most := k.routing.Experts / k.Replicas
	switch {
	case w < Placed || step == 0:
		return routing.Contiguous(k.routing.Experts, k.Replicas)
	case w == Free:
		most = k.routing.Experts
	}
	sums := make([]float64, k.routing.Experts)
	for m := range microbatches {
		for e, n := range k.routing.Loads(block, k.slot(step-1, m)) {
			sums[e] += float64(n)
		}
	}
	return routing.Placed(sums, k.Replicas, most)
}

// fullestOfAll returns the largest load of an expert over the mean one, of all blocks and
// slots.
func (k *Case) fullestOfAll() float64 {
	most, alone := 1.0, routing.Contiguous(k.routing.Experts, k.routing.Experts)
	for block := range k.routing.Blocks {
		for slot := range k.routing.Slots {
			most = max(most, alone.Fullest(k.routing.Loads(block, slot), k.routing.Experts))
		}
	}
	return most
}

// Spread returns what the loads of ranks are over their mean if experts lie in their order: the mean
// over blocks and microbatches of the fullest, and the smallest and largest of a block.
func (k *Case) Spread() (mean, least, most float64) {
	p := routing.Contiguous(k.routing.Experts, k.Replicas)
	for block := range k.routing.Blocks {
		sum := 0.0
		for slot := range k.routing.Slots {
			sum += p.Fullest(k.routing.Loads(block, slot), k.Replicas)
		}
		sum /= float64(k.routing.Slots)
		if block == 0 {
			least = sum
		}
		mean, least, most = mean+sum/float64(k.routing.Blocks), min(least, sum), max(most, sum)
	}
	return mean, least, most
}
