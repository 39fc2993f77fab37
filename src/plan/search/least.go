package search

import (
	"math"
	"slices"

	"dynmo/src/cost"
)

// LeastSeconds returns a lower bound of Seconds, for all cuts and all schedules. It takes messages of
// the pipeline as free. Each layer has the seconds of its cheapest microbatch on the fastest stage.
// Gradient sums have the speed of the fastest link between replicas.
//
// With one chunk on each stage it is the smallest S for which cuts exist whose stages all have a bound
// of at most S. The bound of a stage is the largest of five sums, as in sim.LowerBound. Each adds up the
// stage's own work and the work of other stages before and after it; one adds its gradient sums. Adding a
// layer at either end of a stage never lowers that bound. So the stages may take as many layers as they
// can, from the left.
//
// With several chunks on a stage it is the largest of
//
//	(M·Σ_l t_l + Σ_{s<P} Σ_{l<s} f_l) / P   stage s first waits for one layer on each stage before it
//	Σ_l g_l / P                             the links of all stages are busy with gradient sums
//	M·t_l - w_l + g_l                       for each l: it is summed after the last W of its stage began
//
// There are P stages s and M microbatches. F, I and W of layer l take f_l, i_l and w_l seconds, and
// t_l = f_l + i_l + w_l. The gradient sum of layer l keeps a link busy for g_l seconds.
func (s *Step) LeastSeconds() float64 {
	if s.forms[0].Chunks > 1 {
		return s.leastOfChunks()
	}
	least := s.leastOfLine()
	if len(s.forms) > 1 {
		return min(least, s.leastOfChunks())
	}
	return least
}

// prefixes are sums over the layers before each layer, and before the end of the chain.
type prefixes struct {
	layers []cost.Stage // cheapest seconds
	sums   []float64    // seconds of gradient sums
}

// prefixes returns the sums of the cheapest seconds of layers, and of their gradient sums.
func (s *Step) prefixes() prefixes {
	slow, t := math.Inf(1), s.Costs.Fitted(s.Mesh.Stages)
	perByte := math.Inf(1) // seconds of all rounds
	for stage := range s.Mesh.Stages {
		factor := s.slowdown(stage)
		if t.Slow != nil {
			factor *= t.Slow[stage]
		}
		slow = min(slow, factor)
		const bytes = 1 << 30
		perByte = min(perByte, s.sumSeconds(stage, bytes)/bytes)
	}
	if s.Mesh.Replicas <= 1 {
		perByte = 0
	}
	sums := prefixes{make([]cost.Stage, len(t.Layers)+1), make([]float64, len(t.Layers)+1)}
	for l, layer := range t.Layers {
		factor := slow
		if len(t.Scale) > 0 && len(t.Scale[l]) > 0 {
			factor *= slices.Min(t.Scale[l])
		}
		sums.layers[l+1] = sums.layers[l].Plus(layer.Stage().Scale(factor))
		sums.sums[l+1] = sums.sums[l] + perByte*float64(layer.Summed())
	}
	return sums
}

// leastOfStage returns seconds that a step takes at least if a stage holds the layers from lo
// to hi of a chain. In the words of sim.LowerBound it is the largest of
//
//	head + M·(f+i+w)                the stage does all its work after head
//	head + M·(f+i) + tail           the last of all F and I is an I
//	head + f + trip + M·(i+w)       no I starts before the first F came back
//	head + f + trip + M·i + tail    the same, up to the last I
//	head + M·(f+i+w) - w + sums     the last W completes the gradients that are summed
func (s prefixes) leastOfStage(lo, hi, microbatches int) float64 {
	before, behind, all, m := s.layers[lo], s.layers[hi], s.layers[len(s.layers)-1], float64(microbatches)
	f, i, w := behind.Forward-before.Forward, behind.Input-before.Input, behind.Weight-before.Weight
	head, tail := before.Forward, before.Input
	back := all.Forward + all.Input - behind.Input // head + f + trip
	return max(
		head+m*(f+i+w),
		head+m*(f+i)+tail,
		back+m*(i+w),
		back+m*i+tail,
		head+m*(f+i+w)-w+s.sums[hi]-s.sums[lo],
	)
}

// leastOfLine is LeastSeconds of one chunk on each stage.
func (s *Step) leastOfLine() float64 {
	sums, layers := s.prefixes(), len(s.Costs.Layers)
	fits := func(limit float64) bool {
		end := 0
		for range s.Mesh.Stages {
			begin := end
			for end < layers && sums.leastOfStage(begin, end+1, s.Microbatches) <= limit {
				end++
			}
		}
		return end == layers
	}
	low, high := 0.0, sums.leastOfStage(0, layers, s.Microbatches)
	for high-low > leastImprovement*low/10 {
		if middle := (low + high) / 2; fits(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// leastOfChunks is LeastSeconds of several chunks on a stage.
func (s *Step) leastOfChunks() float64 {
	sums, layers, m := s.prefixes(), len(s.Costs.Layers), float64(s.Microbatches)
	work := m * sums.layers[layers].Seconds()
	for stage := range s.Mesh.Stages {
		work += sums.layers[min(stage, layers)].Forward
	}
	least := max(work, sums.sums[layers]) / float64(s.Mesh.Stages)
	for l := range layers {
		lo, hi := sums.layers[l], sums.layers[l+1]
		w := hi.Weight - lo.Weight
		least = max(least, m*(hi.Forward-lo.Forward+hi.Input-lo.Input+w)-w+sums.sums[l+1]-sums.sums[l])
	}
	return least
}
