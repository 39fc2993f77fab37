package elastic

import (
	"errors"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/layout"
)

// World is one rank's view of the ranks that take part: the groups that this rank is in.
type World struct {
	All      *comm.Group // all ranks that take part, numbered by the layout's mesh; nil: this rank takes no part
	Stages   *comm.Group // the stages of this rank's replica: rank = stage
	Replicas *comm.Group // the replicas of this rank's stage: rank = replica
	// Base is the launched world, with ranks that no longer take part. It stays open until the run
	// ends. Once some rank takes no part, nobody may call a collective of Base: the rank may have
	// ended. Only the messages between Releases and Await use Base then.
	Base *comm.Group
}

// Join forms the groups of the first layout of a run. The layout has a place for every rank of base,
// the launched world. Collective over base.
func Join(base *comm.Group, l layout.Layout) (World, error) {
	w := World{All: base, Base: base}
	if base.HostOnly() { // Base has no device memory, so it can stay open when this rank gives up its device
		var err error
		if w.All, err = base.Split(0, base.Rank()); err != nil {
			return w, fmt.Errorf("ranks: %w", err)
		}
	}
	return join(w, l)
}

// join forms the groups of stages and of replicas of a layout that has a place for every rank of
// w.All. Collective over w.All.
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

// Resize returns the world of the next layout. It is w if both layouts have the same ranks. If not,
// the next layout has some of the present ranks, and Resize closes all groups of w except Base. A
// rank without a place in the next layout gets a world that has only Base: its Outside is true.
// Collective over w.All.
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

// Outside reports whether this rank no longer takes part.
func (w World) Outside() bool { return w.All == nil }

// leave closes all groups except Base. Collective over w.All.
func (w World) leave() error {
	err := errors.Join(w.Stages.Close(), w.Replicas.Close())
	if w.All != w.Base {
		err = errors.Join(err, w.All.Close())
	}
	return err
}

// Close closes all groups at the end of the run. It closes Base only if all launched ranks still take
// part; otherwise Base ends with the process. A rank that is Outside does not call Close. Collective
// over w.All.
func (w World) Close() error {
	complete := w.All.Size() == w.Base.Size()
	err := w.leave()
	if complete {
		err = errors.Join(err, w.Base.Close())
	}
	return err
}
