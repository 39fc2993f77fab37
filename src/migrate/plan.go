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

// Plan is a migration from the point of view of one rank of its group. A layer can stay on a rank
// even if its chunk changes.
type Plan struct {
	Moves  []layout.Move // From and To are ranks of the group; the same order on all ranks
	Layers []int         // layers of this rank after the migration, ascending
	Config model.Config  // model of this rank after the migration

	Lacking error             // the reason why this rank has no memory for its layers; nil: it has memory, or Begin finds that out
	Alike   *comm.Group       // the ranks that move or stay together; nil: those of the group
	Reached func(fault.Phase) // called in every phase; may be nil
}

// Within returns the plan of a stage for a change of owners within its replica, which is the group.
// All replicas move alike. The last stages may send away all their layers and leave. Any other
// stage without a layer is an error.
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

// Between returns the plan of a rank for a change of layouts. The group is the ranks of the present
// mesh. The next layout may use other ranks of the group (see layout.Moves). c is the present model
// of the rank: in another replica the rank may have other pieces.
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

// layers returns the number of layers that move, in any replica.
func (p Plan) layers() (n int) {
	last := -1
	for _, m := range p.Moves {
		if m.Layer != last {
			n, last = n+1, m.Layer
		}
	}
	return n
}
