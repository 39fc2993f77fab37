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
// stage's own work and the work of other stages before and after it; one adds its gradient sums. Adding a layer at either end of a stage never lowers that bound. So the stages may
// take as many layers as they can, from the left.
//
// With several chunks on a stage it is the largest of
//
//	(M·Σ_l t_l + Σ_{s<P} Σ_{l<s} f_l) / P   stage s first waits for one layer on each stage before it
//	Σ_l g_l / P                             the links of all stages are busy with gradient sums
//	M·t_l - w_l + g_l                       for each l: it is summed after the last W of its stage began
//
// There are P stages s and M microbatches. F, I and W of layer l take f_l, i_l and w_l seconds, and
// t_l = f_l + i_l + w_l. The gradient sum of layer l keeps a link busy for g_l seconds.
func (p *Planner) LeastSeconds(t cost.Table) float64 {
	least := p.leastOfChunks(t)
	if p.Map.Chunks == 1 {
		least = p.leastOfLine(t)
	}
	if p.Other != nil {
		return min(least, p.Other.leastOfChunks(t))
	}
	return least
}

// prefixes are sums over the layers before each layer, and before the end of the chain.
type prefixes struct{ forward, input, weight, sums []float64 }

// prefixes returns the sums of the cheapest seconds of layers, and of their gradient sums.
func (p *Planner) prefixes(t cost.Table) prefixes {
	slow := math.Inf(1)
	t = t.Fitted(p.Map.Stages)
	perByte := math.Inf(1) // seconds of all rounds
	for stage := range p.Map.Stages {
		factor := p.slowdown(stage)
		if t.Slow != nil {
			factor *= t.Slow[stage]
		}
		slow = min(slow, factor)
		const bytes = 1 << 30
		perByte = min(perByte, p.sumSeconds(stage, bytes)/bytes)
	}
	if p.Mesh.Replicas <= 1 {
		perByte = 0
	}
	n := len(t.Layers)
	sums := prefixes{make([]float64, n+1), make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)}
	for l, layer := range t.Layers {
		factor := slow
		if len(t.Scale) > 0 && len(t.Scale[l]) > 0 {
			factor *= slices.Min(t.Scale[l])
		}
		c := layer.Stage().Scale(factor)
		sums.forward[l+1] = sums.forward[l] + c.Forward
		sums.input[l+1] = sums.input[l] + c.Input
		sums.weight[l+1] = sums.weight[l] + c.Weight
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
	last, m := len(s.forward)-1, float64(microbatches)
	f, i, w := s.forward[hi]-s.forward[lo], s.input[hi]-s.input[lo], s.weight[hi]-s.weight[lo]
	head, tail := s.forward[lo], s.input[lo]
	back := s.forward[last] + s.input[last] - s.input[hi] // head + f + trip
	return max(
		head+m*(f+i+w),
		head+m*(f+i)+tail,
		back+m*(i+w),
		back+m*i+tail,
		head+m*(f+i+w)-w+s.sums[hi]-s.sums[lo],
	)
}

// leastOfLine is LeastSeconds of one chunk on each stage.
func (p *Planner) leastOfLine(t cost.Table) float64 {
	s, layers := p.prefixes(t), len(t.Layers)
	fits := func(limit float64) bool {
		end := 0
		for range p.Map.Stages {
			begin := end
			for end < layers && s.leastOfStage(begin, end+1, p.Microbatches) <= limit {
				end++
			}
		}
		return end == layers
	}
	low, high := 0.0, s.leastOfStage(0, layers, p.Microbatches)
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
func (p *Planner) leastOfChunks(t cost.Table) float64 {
	s, layers, m := p.prefixes(t), len(t.Layers), float64(p.Microbatches)
	work := m * (s.forward[layers] + s.input[layers] + s.weight[layers])
	for stage := range p.Map.Stages {
		work += s.forward[min(stage, layers)]
	}
	least := max(work, s.sums[layers]) / float64(p.Map.Stages)
	for l := range layers {
		w := s.weight[l+1] - s.weight[l]
		least = max(least, m*(s.forward[l+1]-s.forward[l]+s.input[l+1]-s.input[l]+w)-w+s.sums[l+1]-s.sums[l])
	}
	return least
}
