package plan

import (
	"slices"

	"dynmo/src/layout"
)

// wholeNodes reports whether whole nodes are to come free, not ranks.
func (b *balancer) wholeNodes() bool {
	c := b.planner.config
	return c.Repack.Unit == "node" || c.Repack.Unit == "auto" && (c.Elastic.Release == "slurm" || c.Elastic.Release == "restart")
}

// fewestNodes returns how many nodes so many ranks of a layout fill at least, the first
// rank's among them.
func (b *balancer) fewestNodes(present layout.Layout, ranks int) int {
	first := b.Nodes[present.World(0)]
	has := make(map[int]int)
	for rank := range present.Mesh.Size() {
		has[b.Nodes[present.World(rank)]]++
	}
	left, nodes := ranks-has[first], 1
	delete(has, first)
	others := make([]int, 0, len(has))
	for _, n := range has {
		others = append(others, n)
	}
	slices.Sort(others)
	for i := len(others) - 1; i >= 0 && left > 0; i-- {
		left, nodes = left-others[i], nodes+1
	}
	return nodes
}
