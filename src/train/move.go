package train

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/plan"
)

// migrate moves layers to their stages in the decided layout. If the run starts again on a smaller
// allocation instead, layers stay. Collective over the present world.
func (r *Rank) migrate(t *turn) (err error) {
	t.moving = r.now()
	next := t.next
	t.packs, t.restarts = next.Stages() < r.layout.Stages(), r.Terms.Restarts(r.layout, next)
	if t.restarts != nil {
		next = r.layout
	}
	if !next.SameRanks(r.layout) { // ranks that leave take no part in the agreement on a checkpoint
		if err := r.saver.Finish(r.world); err != nil {
			return err
		}
	}
	if t.moved, err = r.move(t.step+1, t.relocation, next); err != nil {
		return err
	}
	if t.moved.Refused != "" {
		next, t.next, t.packs = r.layout, r.layout, false
		t.why.Kept, t.why.Pack = plan.KeptRefused, nil
		r.Balancer.NoteRefusal()
	}
	r.layout = next
	if r.releases == nil {
		return nil
	}
	return r.releases.Add(t.step+1, elastic.Lost(t.ran, next))
}

// move moves layers, after `steps` steps, to their ranks in the next layout. It makes the world,
// the stage and the runner of that layout. State that only the update reads may follow while the
// next step computes: see settle. If a rank has no memory for the move, all layers stay. Collective
// over the present world.
func (r *Rank) move(steps int, to *relocation, next layout.Layout) (layout.Moved, error) {
	if next.Equal(r.layout) {
		return layout.Moved{}, nil
	}
	if err := r.settle(); err != nil {
		return layout.Moved{}, err
	}
	defer r.recycle()()
	var rest *migrate.Rest
	var err error
	within := next.SameRanks(r.layout)
	if within {
		rest, err = r.moveWithin(r.layout, next, to.Behind, r.killer(steps))
	} else {
		rest, err = r.moveAcross(to, r.killer(steps))
	}
	if err != nil {
		return r.refused(err)
	}
	r.rest = rest
	if r.world.Outside() {
		return rest.Moved, nil
	}
	if r.stage, err = rest.Regroup(r.world.Replicas, r.world.All, next.Pieces, r.regroup(next), r.stage); err == nil {
		err = r.place(next)
	}
	if full, failed := comm.AnyFailed(r.world.All, err); failed != nil || full && !within {
		return rest.Moved, fmt.Errorf("migrate: %w", errors.Join(err, failed))
	} else if full {
		return r.moveBack(next, rest, err)
	}
	r.runner.Forwarded(rest.Forwarded)
	return rest.Moved, rest.Start()
}

// moveWithin moves layers from their stages in layout from to their stages in layout next, on the
// same ranks. Collective over the stages of a replica.
func (r *Rank) moveWithin(from, next layout.Layout, behind bool, reached func(fault.Phase)) (*migrate.Rest, error) {
	p, err := migrate.Within(from.Owners(), next.Owners(), r.world.Stages.Rank(), r.stage.Config)
	if err != nil {
		return nil, err
	}
	if p.Reached = reached; r.world.Replicas.Size() > 1 {
		p.Alike = r.world.All
	}
	var rest *migrate.Rest
	r.stage, rest, err = migrate.Begin(r.world.Stages, p, r.x, r.stage, behind)
	if err == nil && !behind {
		err = rest.Settle()
	}
	return rest, err
}

// moveAcross moves layers to a layout on other ranks, and makes the world of that layout.
// Collective over the present world.
func (r *Rank) moveAcross(to *relocation, reached func(fault.Phase)) (*migrate.Rest, error) {
	me, next := r.world.All.Rank(), to.Next
	p, err := migrate.Between(r.layout, next, me, r.stage.Config, func(layer int) bool { return slices.Contains(to.Own, layer) })
	if err != nil {
		return nil, err
	}
	p.Reached, p.Lacking = reached, r.lacks(r.layout.World(me), to)
	var rest *migrate.Rest
	r.stage, rest, err = migrate.Begin(r.world.All, p, r.x, r.stage, false)
	if err == nil {
		err = rest.Settle()
	}
	if err != nil {
		return nil, err
	}
	began := r.now()
	if r.world, err = r.world.Resize(r.layout, next); err != nil {
		return nil, fmt.Errorf("resize: %w", err)
	}
	r.resized = r.now() - began
	if reached != nil {
		reached(fault.Resized)
	}
	return rest, nil
}

// moveBack undoes a move within the same ranks, because a rank has no memory for the runner of its
// new stage. err is the error of this rank, or nil. Collective over the world, which both layouts
// share.
func (r *Rank) moveBack(next layout.Layout, rest *migrate.Rest, err error) (layout.Moved, error) {
	if err := rest.Settle(); err != nil {
		return layout.Moved{}, err
	}
	var failed error
	if r.stage, failed = rest.Regroup(r.world.Replicas, r.world.All, r.layout.Pieces, nil, r.stage); failed == nil {
		_, failed = r.moveWithin(next, r.layout, false, nil)
	}
	if failed != nil {
		return layout.Moved{}, fmt.Errorf("migrate: back: %w", failed)
	}
	return r.refused(&migrate.NoRoomError{Mine: err})
}

// refused turns a lack of memory into a refused move: the run goes on in the present layout. It
// returns any other error. Collective over the present world.
func (r *Rank) refused(err error) (layout.Moved, error) {
	none, ok := errors.AsType[*migrate.NoRoomError](err)
	if !ok {
		return layout.Moved{}, err
	}
	why := comm.Agree(r.world.All, none.Mine, false)
	if _, ok := errors.AsType[comm.SharedError](why); !ok {
		return layout.Moved{}, why
	}
	if err := r.place(r.layout); err != nil {
		return layout.Moved{}, fmt.Errorf("migrate: back: %w", err)
	}
	return layout.Moved{Refused: why.Error()}, nil
}

// settle finishes the last update and the last move, if part of them still runs. Every reader of
// state that may still travel calls it first (see layout.Layout.OptimizerCanFollow).
func (r *Rank) settle() error {
	if err := r.runner.FinishUpdate(); err != nil || r.rest == nil {
		return err
	}
	r.Device.Recycle(true)
	defer r.Device.Recycle(false)
	err := r.rest.Settle()
	r.rest = nil
	return err
}

// recycle closes the runner. Until the returned function is called, a device that recycles memory
// gives the memory of the runner's buffers, and of layers that leave, to new objects. What is left of
// this memory is kept for the next recycling only.
func (r *Rank) recycle() (end func()) {
	r.Device.Recycle(true)
	r.runner.Close()
	return func() { r.Device.Recycle(false) }
}

// regroup makes the readers of microbatches for a layout whose microbatches are joined differently
// from the present ones. The caller has closed the runner.
func (r *Rank) regroup(next layout.Layout) error {
	p := r.Config.Parallel
	joined := p.Microbatches / next.Schedule.Microbatches
	if joined*p.MicrobatchSize == r.x.B {
		return nil
	}
	r.x.Close()
	r.x.B = joined * p.MicrobatchSize
	r.draw(joined)
	return r.x.Reserve(r.stage.Config)
}

// lacks returns an error if the GPU of this rank has less memory than its next stage needs. The
// need is the planned memory of the stage, plus the communicators of the next world. A rank that
// leaves needs nothing. On a CPU only a failed allocation shows a lack.
func (r *Rank) lacks(rank int, to *relocation) error {
	next := to.Next
	gpu, ok := r.Device.(interface {
		Memory() (free, total int64, err error)
	})
	at, stays := next.Place(rank)
	if !ok || !stays {
		return nil
	}
	stage := next.Mesh.Stage(at)
	need := to.Bytes[stage]
	if r.TransportBytes != nil {
		need += r.TransportBytes(next.Mesh.Stages, next.Mesh.Replicas)
	}
	free, _, err := gpu.Memory()
	if err != nil {
		return err
	}
	if room := free + r.Device.Used() + r.Device.Kept(); need > room {
		const gib = 1 << 30
		return fmt.Errorf("stage %d of the next layout needs %.2f GiB of the GPU, which has %.2f GiB for it",
			stage, float64(need)/gib, float64(room)/gib)
	}
	return nil
}
