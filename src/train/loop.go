package train

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/comm"
	"dynmo/src/migrate"
	"dynmo/src/pipeline"
	"dynmo/src/plan/policy"
	"dynmo/src/record"
)

// Outcome is how a run ended, the same on every rank.
type Outcome struct {
	Steps   int     // steps that were run
	Loss    float64 // of the last step
	Stopped bool    // asked to end before the last step
	Saved   int     // steps that the last checkpoint holds; 0: there is none
	Left    bool    // this rank was given back: the others went on without it
	Next    *Next   // on what the run is to go on, for which it has ended; nil: it has not
	Hash    string  // of the final weights, if train.hash is set
}

// Loop trains (paper, Algorithm 1). The world, the layout and the stage that a
// step leaves are those that the next one starts from; nothing else goes round
// but what each room remembers. Collective over all ranks.
func (r *Rank) Loop() (out Outcome, err error) {
	w, l, s := r.world, r.layout, r.stage
	if r.World.Rank() == 0 {
		r.journal = record.NewJournal(r.Observe, r.planner, r.Config, r.Device.Clock().Kind(), r.World.Hosts())
	}
	if err := r.startClock(); err != nil {
		return out, fmt.Errorf("start: %w", err)
	}
	out.Steps, out.Loss, out.Saved = r.resumed.Step, r.resumed.loss, r.resumed.Step
	r.journal.Resume(r.resumed.sparsity)
	if err := r.startSaver(); err != nil {
		return out, fmt.Errorf("start: %w", err)
	}
	if err := r.keepProducts(); err != nil {
		return out, fmt.Errorf("start: %w", err)
	}
	if err := r.startReleases(); err != nil {
		return out, fmt.Errorf("start: %w", err)
	}
	clock, steps, post := r.Device.Clock(), r.Config.Train.Steps, r.World.Post()
	for step := r.resumed.Step; step < steps && !out.Stopped; step++ {
		fail := func(err error) (Outcome, error) { return out, fmt.Errorf("step %d: %w", step, err) }
		began := time.Now()

		// Change: the dynamism changes the model.
		post.Enter(step, comm.RoomDynamic)
		change, err := r.change(step, w, l, s)
		if err != nil {
			return fail(err)
		}

		// Step: forward and backward of all microbatches, gradients summed over replicas.
		post.Enter(step, comm.RoomPipeline)
		start := clock.Now()
		r.slows.begin(r.Fault, step)
		if r.Fault.In(step, r.World.Rank()) {
			r.Fault.Strike(r.World.Abort, r.Exit)
		}
		done, err := r.runner.Step(r.feed(step, w.Replicas.Rank(), l))
		if err != nil {
			return fail(err)
		}

		// Update: one agreement on loss and norm, then the optimizer.
		post.Enter(step, comm.RoomUpdate)
		agreed, skipped, err := r.update(step, &done)
		if err != nil {
			return fail(err)
		}
		diverged := r.diverged(agreed)

		// Validate: at times, the loss of data that nothing is trained on. The step is over
		// for all that follows from its time.
		post.Enter(step, comm.RoomValidation)
		validating := time.Now()
		validation, err := r.validate(step, w, agreed, diverged)
		if err != nil {
			return fail(err)
		}
		began = began.Add(time.Since(validating))

		// Measure: what the step showed, the same on every rank.
		post.Enter(step, comm.RoomProfile)
		measuring := clock.Now()
		m, err := r.profiler.Measure(r.x, s, l, done, r.own(), change)
		if err != nil {
			return fail(err)
		}
		late := r.stragglers(w, l, m)
		if err := r.dynamism.After(step, m.Measurement); err != nil {
			return fail(fmt.Errorf("dynamic: %w", err))
		}

		// Decide: a pure function of what was measured.
		post.Enter(step, comm.RoomBalance)
		next, why := l, policy.Reason{}
		if step+1 < steps && diverged == nil {
			if next, why, err = r.Balancer.Decide(m, l); err != nil {
				return fail(err)
			}
		}

		// Migrate and resize: layers go where the next layout has them, and ranks that
		// it has no place for go.
		post.Enter(step, comm.RoomMigrate)
		moving, ran := clock.Now(), l
		packs, restarts := next.Stages() < l.Stages(), r.restarts(l, next)
		decided := next
		if restarts != nil {
			next = l
		}
		if !next.SameRanks(l) { // ranks that leave take part in no agreement
			if err := r.finishSaving(w); err != nil {
				return fail(err)
			}
		}
		var moved migrate.Moved
		if w, s, moved, err = r.move(step+1, w, m, l, next, s); err != nil {
			return fail(err)
		}
		if moved.Refused != "" {
			next, decided, why, packs = l, l, r.stay(why), false
		}
		l = next
		if err := r.park(step+1, ran, next); err != nil {
			return fail(err)
		}

		// Record: rank 0 tells what happened.
		post.Enter(step, comm.RoomRecord)
		r.spent = clock.Now() - measuring
		out.Steps, out.Loss, out.Left = step+1, agreed.Loss, w.Outside()
		if out.Left {
			r.world, r.stage = w, s
			return out, nil
		}
		out.Stopped = agreed.Ask == pipeline.Stop && step+1 < steps
		told := record.Done{
			Step: step, Loss: agreed.Loss, Norm: agreed.Norm, LR: learningRate(r.Config.Optimizer, step, steps), Skipped: skipped,
			Measured: m, Ran: ran, Next: decided, Why: why, Moved: moved,
			Start: start, Deciding: moving - measuring, Moving: clock.Now() - moving, Resizing: r.resized, Resident: r.Before > 0,
			Validation: validation, Stragglers: late,
		}
		if restarts != nil { // told of once a checkpoint allows it
			told.Next, told.Why = next, policy.Reason{Reference: why.Reference}
		}
		if err := r.journal.Step(told); err != nil {
			return fail(err)
		}
		if diverged != nil {
			err := errors.Join(diverged, r.journal.End())
			_ = w.All.Barrier() // a rank that returns earlier ends rank 0 before it has recorded
			return fail(err)
		}

		// Save: a checkpoint is written while steps go on, but for the last.
		post.Enter(step, comm.RoomSave)
		at := place{step + 1, w, l, s}
		if err := r.save(at, agreed, packs && r.Terms.Ends(), out.Stopped || restarts != nil || step+1 == steps); err != nil {
			return fail(err)
		}
		out.Saved = r.saver.saved
		if restarts != nil && out.Saved == out.Steps {
			out.Next, out.Stopped = restarts, true
			told.Next, told.Why = decided, why
			if err := r.journal.Packed(told); err != nil {
				return fail(err)
			}
		}
		if err := r.poll(out.Saved); err != nil {
			return fail(err)
		}
		r.took(step, time.Since(began))
	}
	return r.end(out, w, l, s)
}
