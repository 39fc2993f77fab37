package moe

import (
	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/kind/moe/routing"
)

// workload is a mixture of experts that are spread over ranks, of which the fullest
// sets the time of a layer, as routers of a small trained model filled them: an MLP takes as
// many times longer than with equal loads, which the dense costs stand for, as that rank
// has the mean load. Blocks are the recorded ones in proportion to their depth, microbatches
// consecutive ones that were recorded, from another one on in every step.
type workload struct {
	Recorded routing.Recording
	Ranks    int
}

// recorded returns the workload of the settings.
func recorded(c config.Config) dynamic.Workload {
	s := config.Of[simulated](c)
	r, err := routing.Named(s.Routing)
	if err != nil {
		panic("moe: settings name a recording that the program has not")
	}
	return workload{r, min(s.ExpertRanks, r.Experts)}
}

// Costs change with every step.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	r, p := w.Recorded, routing.Contiguous(w.Recorded.Experts, w.Ranks)
	first := c.Random(stream).IntN(r.Slots) + step*slotStride
	return c.Scaled(func(factors []float64, b dynamic.Block) {
		for m := range factors {
			loads := r.Loads(b.Index*r.Blocks/c.Count, (first+m)%r.Slots)
			factors[m] = 1 + b.MLP*(p.Fullest(loads, w.Ranks)-1)
		}
	})
}

// slotStride is how many recorded microbatches lie between the first ones of two steps: a
// prime, so that steps begin with each of them.
const slotStride = 29

// stream is that of the random numbers.
const stream = 2
