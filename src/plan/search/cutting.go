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

// CutProblem returns the problem of cutting the chain into the virtual stages of the present map, by
// balance.by. If that is "time", a layer's load for one of M microbatches is
//
//	seconds of its passes + λ/M · seconds of the messages that sum its gradients over replicas
//
// Of λ = 0, 0.25, 0.5 and 1 it takes the one whose optimal cuts have the shortest simulated step. The
// sums run beside the last backwards, so no single λ is right for all costs. Without replicas λ is 0.
// If a stage's ranks are slow, the problem also multiplies the seconds of its messages by the slowness;
// the simulation does not.
func (s *Step) CutProblem() balance.Problem {
	if s.cache.cutting == nil {
		q := s.cutProblem(s.here, s.By)
		s.cache.cutting = &q
		if s.By == balance.ByTime && s.Mesh.Replicas > 1 {
			shortest := math.Inf(1)
			for _, weighted := range s.weighSums(q) {
				r, err := balance.Partition(weighted)
				if err != nil {
					s.cache.cutting = &q
					break
				}
				if seconds := s.Seconds(s.baseLayout(r.Cuts)); seconds < shortest*(1-leastImprovement) {
					s.cache.cutting, shortest = &weighted, seconds
				}
			}
		}
	}
	return *s.cache.cutting
}

// weighSums returns a problem by time with the seconds of gradient sums added to its layers,
// once for each of sumWeights. Without replicas it returns the problem alone.
func (s *Step) weighSums(q balance.Problem) []balance.Problem {
	if s.Mesh.Replicas <= 1 {
		return []balance.Problem{q}
	}
	all := make([]balance.Problem, len(sumWeights))
	for i := range all {
		all[i] = q
		all[i].Seconds = slices.Clone(q.Seconds)
	}
	for l, layer := range s.Costs.Layers {
		slowest := 0.0 // of all rounds, among the stages' links between replicas
		for stage := range s.Mesh.Stages {
			slowest = max(slowest, s.sumSeconds(stage, layer.Summed()))
		}
		for i, weight := range sumWeights {
			all[i].Seconds[l] += weight * slowest / float64(s.Microbatches)
		}
	}
	return all
}

// sumSeconds returns how long the rounds of a gradient sum of some bytes keep the links between
// the replicas of a stage busy.
func (s *Step) sumSeconds(stage int, bytes int64) float64 {
	seconds, rounds := 0.0, s.rounds()
	for round := range rounds.Last(stage) + 1 {
		_, busy := rounds.Round(stage, round, bytes)
		seconds += busy
	}
	return seconds
}

// cutProblem returns the partition problem of the virtual stages of a form, by time, parameters or
// bytes. It has no memory limit where a stage holds several chunks: missingBytes checks that.
func (s *Step) cutProblem(f *form, by balance.By) balance.Problem {
	n, limit := f.Virtual(), s.limit
	t := s.exchanging(s.Costs).Fitted(f.Stages)
	if f.Chunks > 1 {
		limit = 0
	}
	q := balance.New(t, by, n, f.base.InFlight(), limit)
	spread := func(list []float64, share float64) []float64 {
		if list == nil {
			return nil
		}
		out := make([]float64, n)
		for v := range out {
			out[v] = list[f.Stage(v)] * share
		}
		return out
	}
	q.Slow, q.Fixed = spread(q.Slow, 1), spread(q.Fixed, 1/float64(f.Chunks))
	if by == balance.ByTime {
		q.Slow = s.scaleSlowness(q.Slow, f.Map)
	}
	if b := s.Config.Balance; b.Kind == "diffusion" && b.Gaps == "arrival" && by == balance.ByTime {
		q.Fixed = s.arrivals(q.Fixed)
	}
	for v, peak := range f.peaks {
		q.Between = append(q.Between, peak.Between)
		q.Recomputed = append(q.Recomputed, peak.Recomputed)
		q.FixedBytes = append(q.FixedBytes, s.beside(f.Map, v, peak).Total())
	}
	if s.twice != nil && limit > 0 {
		for l, twice := range s.twice {
			q.TwiceBytes, q.TwiceAgain = append(q.TwiceBytes, twice.Activations), append(q.TwiceAgain, twice.Recomputed)
			q.TwiceSeconds = append(q.TwiceSeconds, secondForward(t.Layers[l]))
		}
		if by != balance.ByTime {
			clear(q.TwiceSeconds)
		}
	}
	if limit == 0 || !s.sumsGradients {
		return q
	}
	// A stage that holds layers [b, e) in one chunk sums their gradients from the last to the first.
	var backwards []int64
	for _, l := range slices.Backward(t.Layers) {
		backwards = append(backwards, l.Summed())
	}
	layers := len(backwards)
	joint := func(b, e int) int64 { return s.sums.Bytes(backwards[layers-e:layers-b], s.Mesh.Replicas) }
	if s.Config.Balance.Kind != "diffusion" {
		q.JointBytes = joint
		return q
	}
	// Stages that diffuse know sums over their layers only, so they take the most of any cuts.
	most := int64(0)
	for e := range layers {
		most = max(most, joint(0, e+1))
	}
	for v := range q.FixedBytes {
		q.FixedBytes[v] += most
	}
	return q
}

// arrivals adds to the fixed seconds of every stage the seconds of its messages: the largest
// output of any layer from the stage before, and the gradient back. (Paper, E.1: diffusion's
// gaps include the transfer, so that work leaves a stage behind a slow link.)
func (s *Step) arrivals(fixed []float64) []float64 {
	if fixed == nil {
		fixed = make([]float64, s.Mesh.Stages)
	}
	bytes := int64(0)
	for _, l := range s.Costs.Layers[:len(s.Costs.Layers)-1] {
		bytes = max(bytes, l.Output)
	}
	for stage := 1; stage < s.Mesh.Stages; stage++ {
		fixed[stage] += s.Network.Delay.Mean() * 2 * s.link(stage-1, stage).Seconds(bytes)
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

// stageCosts returns what layers that cost t take on the virtual stages of the slowest replica.
func (s *Step) stageCosts(t cost.Table, cuts partition.Partition) []cost.Stage {
	m := s.form(cuts.Stages()).Map
	costs := s.exchanging(t).Stages(cuts, m)
	for v := range costs {
		costs[v] = costs[v].Scale(s.slowdown(m.Stage(v)))
	}
	return costs
}

// lowerBound returns seconds that every schedule of these cuts takes, if all microbatches are the
// mean one and memory is no limit. It is the bound of the slowest replica.
func (s *Step) lowerBound(cuts partition.Partition) float64 {
	base := s.form(cuts.Stages()).base
	step := sim.Step{Schedule: base, Costs: s.exchanging(s.Costs).Stages(cuts, base.Map), Network: s.Network, Mesh: s.Mesh, Ranks: s.Present.Ranks}
	least := step.LowerBound(nil)
	for step.Replica = 1; step.Replica < s.Mesh.Replicas && s.Network.Slow != nil; step.Replica++ {
		least = max(least, step.LowerBound(nil))
	}
	return least
}

// scaleSlowness multiplies the slowness of virtual stages with the slowness of the network's
// ranks. Nil stands for ones.
func (s *Step) scaleSlowness(list []float64, m partition.Map) []float64 {
	if s.Network.Slow == nil {
		return list
	}
	if list = slices.Clone(list); list == nil {
		list = slices.Repeat([]float64{1}, m.Virtual())
	}
	for v := range list {
		list[v] *= s.slowdown(m.Stage(v))
	}
	return list
}

// forwardRounds and backwardRounds are the rounds of a pass in which replicas exchange rows: rows go there and come back;
// a forward tells how many rows before that.
const forwardRounds, backwardRounds = 3, 2

// exchanging returns costs in which layers take longer by the rounds in which replicas exchange
// rows: with D replicas, in the forward and in the backward for inputs,
//
//	rounds · latency + 2 · (D-1)/D · rows/bandwidth
//
// on the slowest link between replicas of a stage. A rank that works on more rows than others also
// sends more back: that part grows with the layer's seconds (see cost.Table.Scale).
func (s *Step) exchanging(t cost.Table) cost.Table {
	if s.Mesh.Replicas <= 1 || !slices.ContainsFunc(t.Layers, func(l cost.Layer) bool { return l.Rows > 0 }) {
		return t
	}
	link, share := s.Network.Node, float64(s.Mesh.Replicas-1)/float64(s.Mesh.Replicas)
	for rank := range s.Mesh.Size() {
		other := s.Mesh.Rank(s.Mesh.Stage(rank), 0)
		if l := s.Network.Link(s.Present.World(other), s.Present.World(rank)); l != s.Network.Node {
			link = l
		}
	}
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		at := &t.Layers[l]
		if at.Rows == 0 {
			continue
		}
		both := 0.0
		if link.Bandwidth > 0 {
			both = 2 * share * float64(at.Rows) / link.Bandwidth
		}
		at.Forward += forwardRounds*link.Latency + both
		if at.BackwardInput > 0 {
			at.BackwardInput += backwardRounds*link.Latency + both
		}
	}
	return t
}
