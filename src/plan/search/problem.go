package search

import (
	"math"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/sim"
)

// sumWeights are the weights of gradient sums that are tried, in ascending order.
var sumWeights = []float64{0, 0.25, 0.5, 1}

// Problem returns the problem of cutting the chain into virtual stages, by balance.by. If that is
// "time", a layer's load for one of M microbatches is
//
//	seconds of its passes + λ/M · seconds of the messages that sum its gradients over replicas
//
// Of λ = 0, 0.25, 0.5 and 1 it takes the one whose optimal cuts have the shortest simulated step. The
// sums run beside the last backwards, so no single λ is right for all costs. Without replicas λ is 0.
// If a stage's ranks are slow, the problem also multiplies the seconds of its messages by the slowness;
// the simulation does not.
func (p *Planner) Problem(t cost.Table) balance.Problem {
	q := p.problem(t, p.By)
	if p.By != balance.ByTime || p.Mesh.Replicas <= 1 {
		return q
	}
	return p.found.problem(t, func() balance.Problem {
		best, shortest := q, math.Inf(1)
		for _, weighted := range p.weighSums(q, t) {
			r, err := balance.Partition(weighted)
			if err != nil {
				return q
			}
			if seconds := p.Seconds(t, p.layout(r.Cuts, p.base)); seconds < shortest*(1-leastImprovement) {
				best, shortest = weighted, seconds
			}
		}
		return best
	})
}

// weighSums returns a problem by time with the seconds of gradient sums added to its layers,
// once for each of sumWeights. Without replicas it returns the problem alone.
func (p *Planner) weighSums(q balance.Problem, t cost.Table) []balance.Problem {
	if p.Mesh.Replicas <= 1 {
		return []balance.Problem{q}
	}
	all := make([]balance.Problem, len(sumWeights))
	for i := range all {
		all[i] = q
		all[i].Seconds = slices.Clone(q.Seconds)
	}
	for l, layer := range t.Layers {
		slowest := 0.0 // of all rounds, among the stages' links between replicas
		for stage := range p.Map.Stages {
			slowest = max(slowest, p.sumSeconds(stage, layer.Summed()))
		}
		for i, weight := range sumWeights {
			all[i].Seconds[l] += weight * slowest / float64(p.Microbatches)
		}
	}
	return all
}

// sumSeconds returns how long the rounds of a gradient sum of some bytes keep the links between
// the replicas of a stage busy.
func (p *Planner) sumSeconds(stage int, bytes int64) float64 {
	seconds, step := 0.0, sim.Step{Network: p.Network, Mesh: p.Mesh, Ranks: p.Ranks, Sums: p.Sums()}
	for round := range step.Sums.Rounds(p.Mesh.Replicas) + 1 {
		_, busy := step.Round(stage, round, bytes)
		seconds += busy
	}
	return seconds
}

// problem returns the partition problem of the virtual stages, by time, parameters or bytes.
// It has no memory limit where a stage holds several chunks: missingBytes checks that.
func (p *Planner) problem(t cost.Table, by balance.By) balance.Problem {
	n, limit := p.Map.Virtual(), p.limit
	t = p.exchanging(t).Fitted(p.Map.Stages)
	if p.Map.Chunks > 1 {
		limit = 0
	}
	q := balance.New(t, by, n, p.base.InFlight(), limit)
	spread := func(list []float64, share float64) []float64 {
		if list == nil {
			return nil
		}
		out := make([]float64, n)
		for v := range out {
			out[v] = list[p.Map.Stage(v)] * share
		}
		return out
	}
	q.Slow, q.Fixed = spread(q.Slow, 1), spread(q.Fixed, 1/float64(p.Map.Chunks))
	if by == balance.ByTime {
		q.Slow = p.scaleSlowness(q.Slow, p.Map)
	}
	if b := p.Config.Balance; b.Kind == "diffusion" && b.Gaps == "arrival" && by == balance.ByTime {
		q.Fixed = p.arrivals(t, q.Fixed)
	}
	for v, peak := range p.peaks {
		q.Between = append(q.Between, peak.Between)
		q.Recomputed = append(q.Recomputed, peak.Recomputed)
		q.FixedBytes = append(q.FixedBytes, p.besideLayers(v, peak).Total())
	}
	if p.plans() && limit > 0 {
		for l, twice := range p.twice {
			q.TwiceBytes, q.TwiceAgain = append(q.TwiceBytes, twice.Activations), append(q.TwiceAgain, twice.Recomputed)
			q.TwiceSeconds = append(q.TwiceSeconds, secondForward(t.Layers[l]))
		}
		if by != balance.ByTime {
			clear(q.TwiceSeconds)
		}
	}
	sums := p.sumBytesOfLayers(t)
	if limit == 0 || sums == nil {
		return q
	}
	if p.Config.Balance.Kind != "diffusion" {
		q.JointBytes = sums
		return q
	}
	// Stages that diffuse know sums over their layers only, so they take the most of any cuts.
	most := int64(0)
	for e := range t.Layers {
		most = max(most, sums(0, e+1))
	}
	for v := range q.FixedBytes {
		q.FixedBytes[v] += most
	}
	return q
}

// lineProblem returns the partition problem of one chunk on each stage, without a memory
// limit. Analyze compares a layout with its solution.
func (p *Planner) lineProblem(t cost.Table) balance.Problem {
	q := balance.New(p.exchanging(t).Fitted(p.Map.Stages), balance.ByTime, p.Map.Stages, nil, 0)
	q.Slow = p.scaleSlowness(q.Slow, partition.Line(p.Map.Stages))
	return q
}

// arrivals adds to the fixed seconds of every stage the seconds of its messages: the largest
// output of any layer from the stage before, and the gradient back. (Paper, E.1: diffusion's
// gaps include the transfer, so that work leaves a stage behind a slow link.)
func (p *Planner) arrivals(t cost.Table, fixed []float64) []float64 {
	if fixed == nil {
		fixed = make([]float64, p.Map.Stages)
	}
	bytes := int64(0)
	for _, l := range t.Layers[:len(t.Layers)-1] {
		bytes = max(bytes, l.Output)
	}
	for s := 1; s < p.Map.Stages; s++ {
		fixed[s] += p.Network.Delay.Mean() * 2 * p.link(s-1).Seconds(bytes)
	}
	return fixed
}

// Messages returns, by virtual stage, the bytes of activations that it sends to the next one for a
// microbatch: the output of its last layer.
func Messages(t cost.Table, cuts partition.Partition) []int64 {
	bytes := make([]int64, cuts.Stages())
	for v := range len(bytes) - 1 {
		if end := cuts[v+1]; end > 0 {
			bytes[v] = t.Layers[end-1].Output
		}
	}
	return bytes
}

// stageCosts returns the costs of the virtual stages on the ranks of the network.
func (p *Planner) stageCosts(t cost.Table, cuts partition.Partition) []cost.Stage {
	return p.scaledCosts(t, cuts, p.slowdown)
}

// scaledCosts returns the costs of the virtual stages times a slowness by stage.
func (p *Planner) scaledCosts(t cost.Table, cuts partition.Partition, slow func(stage int) float64) []cost.Stage {
	costs := p.exchanging(t).Stages(cuts, p.Map)
	for v := range costs {
		costs[v] = costs[v].Scale(slow(p.Map.Stage(v)))
	}
	return costs
}

// lowerBound returns seconds that every schedule of these cuts takes under caps by stage, if
// all microbatches are the mean one. It is the bound of the slowest replica.
func (p *Planner) lowerBound(t cost.Table, cuts partition.Partition, caps []int) float64 {
	least := 0.0
	for d := range max(1, p.Mesh.Replicas) {
		costs := p.scaledCosts(t, cuts, func(stage int) float64 { return p.Network.Slowness(p.worldRank(stage, d)) })
		least = max(least, sim.LowerBound(p.Map, costs, p.Microbatches, caps))
		if p.Network.Slow == nil {
			break // all are alike
		}
	}
	return least
}

// scaleSlowness multiplies the slowness of virtual stages with the slowness of the network's
// ranks. Nil stands for ones.
func (p *Planner) scaleSlowness(list []float64, m partition.Map) []float64 {
	if p.Network.Slow == nil {
		return list
	}
	if list = slices.Clone(list); list == nil {
		list = slices.Repeat([]float64{1}, m.Virtual())
	}
	for v := range list {
		list[v] *= p.slowdown(m.Stage(v))
	}
	return list
}

// slowdown returns how many times slower than the costs the slowest replica of a stage is.
func (p *Planner) slowdown(stage int) float64 {
	factor := 1.0
	for d := range p.Mesh.Replicas {
		factor = max(factor, p.Network.Slowness(p.worldRank(stage, d)))
	}
	return factor
}
