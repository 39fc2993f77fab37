package sim

import (
	"dynmo/src/comm"
	"dynmo/src/layout"
)

// Link is one direction between two ranks.
type Link struct {
	Latency   float64 // seconds
	Bandwidth float64 // bytes per second; 0, as in a zero Link, means infinite
}

// comm returns the link in the form that the virtual clock uses.
func (l Link) comm() comm.Network { return comm.Network{Latency: l.Latency, Bandwidth: l.Bandwidth} }

// Seconds returns the time of a message from its departure to its arrival.
func (l Link) Seconds(bytes int64) float64 { return l.comm().Seconds(bytes) }

// Uniform returns the network in which all links are alike.
func Uniform(latency, bandwidth float64) Network {
	l := Link{Latency: latency, Bandwidth: bandwidth}
	return Network{Node: l, Between: l}
}

// Network describes the costs of messages, and the speed of ranks.
type Network struct {
	Node, Between Link       // between ranks of one node, and between ranks of two nodes
	PerNode       int        // ranks on a node, in the order of world ranks; 0: all are on one
	Delay         comm.Delay // random delay of every message
	Slow          []float64  // by world rank: how many times slower the rank is; 1 for ranks beyond the slice
}

// Link returns the link between two ranks of the world.
func (n Network) Link(a, b int) Link {
	if n.PerNode > 0 && a/n.PerNode != b/n.PerNode {
		return n.Between
	}
	return n.Node
}

// Bandwidth returns the bytes per second of the slowest link; 0 means infinite.
func (n Network) Bandwidth() float64 {
	a, b := n.Node.Bandwidth, n.Between.Bandwidth
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Slowness returns how many times slower a rank of the world is.
func (n Network) Slowness(rank int) float64 {
	if rank < len(n.Slow) {
		return n.Slow[rank]
	}
	return 1
}

// rank returns the world rank of a stage.
func (s *Step) rank(stage, replica int) int {
	rank := stage
	if s.Mesh != (layout.Mesh{}) {
		rank = s.Mesh.Rank(stage, replica)
	}
	if s.Ranks != nil {
		return s.Ranks[rank]
	}
	return rank
}

// alike reports whether a step takes two replicas the same time. Their ranks are equally fast,
// their links cost the same, and messages have no random delays.
func (s *Step) alike(a, b int) bool {
	if s.Bytes != nil && s.Network.Delay.Most > 1 {
		return false
	}
	m, n := s.Schedule.Map, &s.Network
	for stage := range m.Stages {
		if n.Slow != nil && n.Slowness(s.rank(stage, a)) != n.Slowness(s.rank(stage, b)) {
			return false
		}
	}
	if n.PerNode == 0 {
		return true
	}
	for v := range m.Virtual() - 1 {
		x, y := m.Stage(v), m.Stage(v+1)
		if n.Link(s.rank(x, a), s.rank(y, a)) != n.Link(s.rank(x, b), s.rank(y, b)) {
			return false
		}
	}
	return true
}
