package study

import (
	"dynmo/src/cost"
	"dynmo/src/layout"
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

// Order is what one value of mesh.order costs.
type Order struct {
	Order  layout.RankOrder `json:"order"`
	Step   float64          `json:"step_seconds"`            // with the gradient sum over replicas
	Stages int              `json:"packed_stages,omitempty"` // half of the stages; 0 if the model cannot be packed onto these
	Free   int              `json:"nodes_freed"`             // by that packing
	Nodes  int              `json:"nodes"`                   // before the packing
	Moving float64          `json:"packing_seconds"`         // for which layers move
}

// Orders plans a step in both orders of the mesh. It returns nil where the order makes no
// difference.
func Orders(t cost.Table, o Options) (list []Order, err error) {
	p := o.Config.Parallel
	if p.Stages == 1 || p.Replicas == 1 || o.Network.PerNode < 2 || o.Network.PerNode >= p.Stages*p.Replicas {
		return nil, nil
	}
	for _, order := range []layout.RankOrder{layout.StageMajor, layout.ReplicaMajor} {
		o.Config.Mesh.Order = string(order)
		best, err := Plan(t, o)
		if err != nil {
			return nil, err
		}
		next := Order{Order: order, Step: best.Seconds}
		o.Pack = map[int]int{1: p.Stages / 2}
		run, err := Simulate(cost.Series{{Steps: 2, Table: t}}, o)
		if err == nil && len(run.Packings()) == 1 { // else memory or the balancer does not allow it
			packed := run.Packings()[0]
			next.Stages, next.Nodes, next.Moving = packed.Stages, run.Segments[0].Nodes, run.Moving
			next.Free = next.Nodes - packed.Nodes
		}
		list = append(list, next)
	}
	return list, nil
}
