package migrate

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
)

// Plan is what a migration does, as a rank of its group sees it. Whether a layer stays
// does not depend on the chunk that it belongs to.
type Plan struct {
	Moves  []layout.Move // From and To are ranks of the group, which has them in one order
	Layers []int         // that this rank has to have, ascending
	Config model.Config  // of the model as this rank has it then

	Lacking error             // why this rank has no room for its layers; nil: it has, or Begin finds out
	Alike   *comm.Group       // the ranks that move or stay together; nil: the group
	Reached func(fault.Phase) // unless nil called in every phase
}

// Within returns the plan of a stage among those of its replica, which are the group, from
// one set of owners to another; replicas move alike. The last stages may hand over all they
// have, and leave. Another stage without a layer is an error.
func Within(from, to partition.Owners, stage int, c model.Config) (Plan, error) {
	p := Plan{Layers: to.Layers(stage), Config: c}
	for stage := range slices.Max(to) + 1 {
		if !slices.Contains(to, stage) {
			return p, fmt.Errorf("migrate: stage %d would have no layer", stage)
		}
	}
	for _, layer := range from.Moved(to) {
		p.Moves = append(p.Moves, layout.Move{Layer: layer, From: from[layer], To: to[layer]})
	}
	return p, nil
}

// Between returns the plan of a rank of the present mesh, whose ranks are the group. The next layout
// may have other ranks of the group (see layout.Moves). c is the model of the rank now: as another
// replica the rank may have another share of its own.
func Between(present, next layout.Layout, rank int, c model.Config, own func(layer int) bool) (Plan, error) {
	p := Plan{Config: c}
	for at := range next.Mesh.Size() {
		if _, ok := present.Place(next.World(at)); !ok {
			return p, fmt.Errorf("migrate: rank %d has left, and cannot come back", next.World(at))
		}
	}
	if slices.Contains(next.LayersPerStage(), 0) {
		return p, errors.New("migrate: a stage would have no layer")
	}
	if at, stays := next.Place(present.World(rank)); stays {
		p.Layers = next.Owners().Layers(next.Mesh.Stage(at))
		p.Config = c.AsReplica(next.Mesh.Replica(at), c.Spread)
	}
	p.Moves = layout.Moves(present, next, own)
	for i := range p.Moves {
		m := &p.Moves[i]
		m.From, _ = present.Place(m.From)
		m.To, _ = present.Place(m.To)
	}
	return p, nil
}

// layers returns how many layers move, of any replica.
func (p Plan) layers() (n int) {
	last := -1
	for _, m := range p.Moves {
		if m.Layer != last {
			n, last = n+1, m.Layer
		}
	}
	return n
}
