// Package elastic changes which ranks take part. What comes in is the world that
// a step was run in and the layout of the next; what goes out is the world of
// that layout, which some ranks may be outside of.
package elastic

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/layout"
)

// World is the ranks that take part, as one of them sees them.
type World struct {
	All      *comm.Group // ranks as the layout's mesh counts them
	Stages   *comm.Group // the stages of this rank's replica: rank = stage
	Replicas *comm.Group // the replicas of this rank's stage: rank = replica
}

// Join forms the groups of a layout, which must fill all ranks. Collective over
// all.
func Join(all *comm.Group, l layout.Layout) (World, error) {
	w := World{All: all}
	stage, replica := l.Mesh.Stage(all.Rank()), l.Mesh.Replica(all.Rank())
	var err error
	if w.Stages, err = all.Split(replica, stage); err != nil {
		return w, fmt.Errorf("stages of replica %d: %w", replica, err)
	}
	if w.Replicas, err = all.Split(stage, replica); err != nil {
		return w, fmt.Errorf("replicas of stage %d: %w", stage, err)
	}
	return w, nil
}

// Resize returns the world of the next layout: the same if its mesh is, else one
// of the ranks whose stage and replica it has, numbered anew in their order. A
// rank that it leaves outside gets an empty world, and has closed its groups.
// Collective over the present world.
func (w World) Resize(present, next layout.Layout) (World, error) {
	if next.Mesh == present.Mesh {
		return w, nil
	}
	m, rank := present.Mesh, w.All.Rank()
	color := comm.Outside
	if m.Stage(rank) < next.Stages() && m.Replica(rank) < next.Mesh.Replicas {
		color = 0
	}
	all, err := w.All.Split(color, rank)
	if err == nil {
		err = w.Close()
	}
	if err != nil || all == nil {
		return World{}, err
	}
	return Join(all, next)
}

// Outside reports whether the rank takes part no longer.
func (w World) Outside() bool { return w.All == nil }

// Close closes all groups. Collective over the world.
func (w World) Close() error {
	return errors.Join(w.Stages.Close(), w.Replicas.Close(), w.All.Close())
}
