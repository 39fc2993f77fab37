package study

import (
	"dynmo/src/cost"
	"dynmo/src/layout"
)

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
		if packed := run.Tally.Packing(); err == nil && packed != nil && packed.Packings == 1 { // else memory or the balancer does not allow it
			next.Stages, next.Nodes, next.Moving = packed.RanksLast/p.Replicas, packed.NodesFirst, run.Moving
			next.Free = packed.NodesFirst - packed.NodesLast
		}
		list = append(list, next)
	}
	return list, nil
}
