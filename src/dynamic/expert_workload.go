package dynamic

import (
	"dynmo/src/config"
	"dynmo/src/dynamic/routing"
)

// ExpertWorkload is a mixture of experts that are spread over ranks, of which the fullest
// sets the time of a layer, as routers of a small trained model filled them: an MLP takes as
// many times longer than with equal loads, which the dense costs stand for, as that rank
// has the mean load. Blocks are the recorded ones in proportion to their depth, microbatches
// consecutive ones that were recorded, from another one on in every step.
type ExpertWorkload struct {
	Recorded routing.Recording
	Ranks    int
}

// recordedExperts returns the workload of the settings.
func recordedExperts(s config.Simulate) Workload {
	r, err := routing.Named(s.Routing)
	if err != nil {
		panic("dynamic: settings name a recording that the program has not")
	}
	return ExpertWorkload{r, min(s.ExpertRanks, r.Experts)}
}

// Costs change with every step.
func (w ExpertWorkload) Costs(c *Chain, step int) Costs {
	r, p := w.Recorded, routing.Contiguous(w.Recorded.Experts, w.Ranks)
	first := c.random(streamRouting).IntN(r.Slots) + step*slotStride
	return c.scaled(func(factors []float64, b block) {
		for m := range factors {
			loads := r.Loads(b.index*r.Blocks/c.count, (first+m)%r.Slots)
			factors[m] = 1 + b.mlp*(p.Fullest(loads, w.Ranks)-1)
		}
	})
}

// slotStride is how many recorded microbatches lie between the first ones of two steps: a
// prime, so that steps begin with each of them.
const slotStride = 29
