package study

import (
	"dynmo/src/layout"
	"dynmo/src/plan/policy"
)

// Packed is a packing of a simulated run onto fewer stages.
type Packed struct {
	Step         int // the first on them
	Before       int // stages
	Stages       int
	Ranks, Nodes int     // that hold layers from then on
	Throughput   float64 // of a step, as a share of the dense model's; 0: not known
}

// nodes returns the node of every rank that the run begins with, nil if all are on one.
func (o Options) nodes() []int {
	if o.Network.PerNode == 0 {
		return nil
	}
	list := make([]int, o.Config.Parallel.Stages*o.Config.Parallel.Replicas)
	for rank := range list {
		list[rank] = rank / o.Network.PerNode
	}
	return list
}

// nodesOf returns how many nodes have a rank of a layout.
func (o Options) nodesOf(l layout.Layout) int {
	if o.Network.PerNode == 0 {
		return 1
	}
	seen := make(map[int]bool)
	for rank := range l.Mesh.Size() {
		seen[l.World(rank)/o.Network.PerNode] = true
	}
	return len(seen)
}

// Packings returns the packings of the run.
func (r Run) Packings() (list []Packed) {
	for i, s := range r.Segments {
		if i == 0 || s.Plan.Stages() >= r.Segments[i-1].Plan.Stages() {
			continue
		}
		list = append(list, Packed{
			Step: s.Step, Before: r.Segments[i-1].Plan.Stages(), Stages: s.Plan.Stages(),
			Ranks: s.Plan.Mesh.Size(), Nodes: s.Nodes, Throughput: r.throughput(s),
		})
	}
	return list
}

// throughput returns that of a segment's steps, as a share of the dense model's.
func (r Run) throughput(s Segment) float64 {
	return r.Reference / s.Even
}

// NotPacked returns the last look at fewer stages that packed nothing, nil if there was
// none since the last packing.
func (r Run) NotPacked() *policy.Packing {
	if len(r.Segments) == 0 {
		return nil
	}
	return r.Segments[len(r.Segments)-1].Pack
}

// FreeNodeSeconds returns the seconds for which nodes that the run began with held no
// layer, added up.
func (r Run) FreeNodeSeconds() (sum float64) {
	for _, s := range r.Segments {
		sum += float64(r.Segments[0].Nodes-s.Nodes) * (s.Seconds*float64(s.Steps) + s.Balancing())
	}
	return sum
}

// LeastThroughput returns the least of all steps since the first packing, as a share of the
// dense model's; 0 where that is not known, or nothing was packed.
func (r Run) LeastThroughput() (least float64) {
	packed := false
	for i, s := range r.Segments {
		packed = packed || i > 0 && s.Plan.Stages() < r.Segments[i-1].Plan.Stages()
		if x := r.throughput(s); packed && (least == 0 || x < least) {
			least = x
		}
	}
	return least
}
