// Package elastic changes which ranks take part. In come the world of a step and the layout of the
// next step. Out goes the world of that layout. Some ranks may be outside of it. They wait for
// rank 0's order (Await). Rank 0 lets them leave between steps (Releases), and Slurm takes their
// nodes back (Job). All ranks agree on the Terms of this before the first step.
package elastic

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/layout"
)

// World is the ranks that take part, as one of them sees them.
type World struct {
	All      *comm.Group // ranks as the layout's mesh counts them; nil: this one takes no part
	Stages   *comm.Group // the stages of this rank's replica: rank = stage
	Replicas *comm.Group // the replicas of this rank's stage: rank = replica
	// Base is all ranks that were launched, of those too that take part no longer. It stays
	// open to the end, and is no group to wait in: some of them may have ended.
	Base *comm.Group
}

// Join forms the groups of a layout, which must fill all ranks. Collective over
// base.
func Join(base *comm.Group, l layout.Layout) (World, error) {
	w := World{All: base, Base: base}
	if base.HostOnly() { // Base stays open where this rank gives up its device
		var err error
		if w.All, err = base.Split(0, base.Rank()); err != nil {
			return w, fmt.Errorf("ranks: %w", err)
		}
	}
	return join(w, l)
}

// join forms the groups of stages and of replicas of a layout that fills all ranks.
// Collective over all.
func join(w World, l layout.Layout) (World, error) {
	stage, replica := l.Mesh.Stage(w.All.Rank()), l.Mesh.Replica(w.All.Rank())
	var err error
	if w.Stages, err = w.All.SplitAs(comm.Chain, replica, stage); err != nil {
		return w, fmt.Errorf("stages of replica %d: %w", replica, err)
	}
	if w.Replicas, err = w.All.SplitAs(comm.Row, stage, replica); err != nil {
		return w, fmt.Errorf("replicas of stage %d: %w", stage, err)
	}
	return w, nil
}

// Resize returns the world of the next layout: the present world if the ranks are the same, else a
// world of the layout's ranks, which are among the present ones. A rank outside of it has closed
// all groups but Base, and its world's Outside is true. Collective over the present world.
func (w World) Resize(present, next layout.Layout) (World, error) {
	if next.SameRanks(present) {
		return w, nil
	}
	color := comm.Outside
	rank, stays := next.Place(present.World(w.All.Rank()))
	if stays {
		color = 0
	}
	all, err := w.All.Split(color, rank)
	if err == nil {
		err = w.leave()
	}
	if err != nil || !stays {
		return World{Base: w.Base}, err
	}
	return join(World{All: all, Base: w.Base}, next)
}

// Outside reports whether the rank takes part no longer.
func (w World) Outside() bool { return w.All == nil }

// leave closes all groups but Base. Collective over the world.
func (w World) leave() error {
	err := errors.Join(w.Stages.Close(), w.Replicas.Close())
	if w.All != w.Base {
		err = errors.Join(err, w.All.Close())
	}
	return err
}

// Close closes all groups; Base only if all ranks that were launched take part, else it
// ends with the process. Collective over the world.
func (w World) Close() error {
	complete := w.All.Size() == w.Base.Size()
	err := w.leave()
	if complete {
		err = errors.Join(err, w.Base.Close())
	}
	return err
}
