package policy

import "dynmo/src/layout"

// wholeNodes reports whether whole nodes are to come free, not ranks.
func (b *balancer) wholeNodes() bool {
	c := b.planner.Config
	return c.Repack.Unit == "node" || c.Repack.Unit == "auto" && (c.Elastic.Release == "slurm" || c.Elastic.Release == "restart")
}

// fewestNodes returns how many nodes so many ranks of a layout fill at least, the first
// rank's among them.
func (b *balancer) fewestNodes(present layout.Layout, ranks int) int {
	return layout.FewestNodes(present, ranks, b.Nodes)
}
