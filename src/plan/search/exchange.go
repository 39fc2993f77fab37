package search

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/sim"
)

// The rounds of a pass in which replicas exchange rows: rows go there and come back; a forward
// tells how many rows before that.
const forwardRounds, backwardRounds = 3, 2

// exchanging returns costs in which layers take longer by the rounds in which replicas exchange
// rows: with D replicas, in the forward and in the backward for inputs,
//
//	rounds · latency + 2 · (D-1)/D · rows/bandwidth
//
// on the slowest link between replicas of a stage. A rank that works on more rows than others also
// sends more back: that part grows with the layer's seconds (see cost.Table.Scale).
func (p *Planner) exchanging(t cost.Table) cost.Table {
	if p.Mesh.Replicas <= 1 || !slices.ContainsFunc(t.Layers, func(l cost.Layer) bool { return l.Rows > 0 }) {
		return t
	}
	link, share := p.betweenReplicas(), float64(p.Mesh.Replicas-1)/float64(p.Mesh.Replicas)
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

// betweenReplicas returns the slowest link between two replicas of a stage.
func (p *Planner) betweenReplicas() sim.Link {
	if p.Network.PerNode == 0 {
		return p.Network.Node
	}
	for stage := range p.Map.Stages {
		for d := 1; d < p.Mesh.Replicas; d++ {
			if l := p.Network.Link(p.worldRank(stage, 0), p.worldRank(stage, d)); l != p.Network.Node {
				return l
			}
		}
	}
	return p.Network.Node
}
