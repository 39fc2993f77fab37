package train

import (
	"errors"

	"dynmo/src/checkpoint"
	"dynmo/src/dynamic"
	"dynmo/src/pipeline"
	"dynmo/src/plan"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
	"dynmo/src/record"
)

// record reports the step on rank 0. It returns the error of a loss that is not finite.
func (r *Rank) record(t *turn) error {
	out, steps := t.out, r.Config.Train.Steps
	r.spent = r.now() - t.measuring
	out.Steps, out.Loss, out.Left = t.step+1, t.agreed.Loss, r.world.Outside()
	if out.Left {
		return nil
	}
	out.Stopped = t.agreed.Ask == pipeline.Stop && t.step+1 < steps
	if r.journal == nil {
		return t.diverged
	}
	if err := r.tell(t); err != nil {
		return err
	}
	told := t.told
	if t.restarts != nil { // reported once a checkpoint allows it
		told.Next, told.Why = r.layout, plan.Reason{Reference: t.why.Reference}
	}
	if err := r.journal.Step(told); err != nil {
		return err
	}
	if t.diverged == nil {
		return nil
	}
	return errors.Join(t.diverged, r.journal.End())
}

// tell fills t.told, on rank 0.
func (r *Rank) tell(t *turn) error {
	moving, m := r.now()-t.moving, t.measured
	m.Dispatch = profile.DispatchOverhead(m.Instructions) // only this rank knows the spans
	var err error
	if r.ran, err = r.ran.Match(t.ran); err != nil {
		return err
	}
	analysis, err := r.ran.Analyze(m, t.ran)
	if err != nil {
		return err
	}
	t.told = record.Done{
		Step: t.step, Loss: t.agreed.Loss, Norm: t.agreed.Norm, LR: r.Config.LearningRate(t.step), Skipped: t.skipped,
		Measured: record.Measured{
			Measurement: m.Measurement, Known: m.Known(), Summary: m.Summary, Memory: m.Memory, Joules: m.Joules, Instructions: m.Instructions,
		},
		Model: search.Shape(r.ran.Config), Analysis: analysis,
		Ran: t.ran, Next: t.next, Why: t.why, Moved: t.moved,
		Start: t.start, Measuring: t.deciding - t.measuring, Deciding: t.moving - t.measuring, Moving: moving, Resizing: r.resized, Resident: r.Before > 0,
		Validation: t.validation, Stragglers: t.stragglers,
	}
	t.told.Plasticity, t.told.Evaluating = dynamic.Evaluated(m.Counts)
	return nil
}

// ask returns the request that this rank has for the end of the step: to stop, or to write a
// checkpoint. Requests come from signals, and on rank 0 from the time since the last checkpoint. Data
// that were changed while the run reads them end it.
func (r *Rank) ask() pipeline.Ask {
	if r.batches != nil && r.batches.Err() != nil {
		return pipeline.Fail
	}
	if r.Stop() || r.asked.Stop {
		return pipeline.Stop
	}
	asked := r.Save != nil && r.Save() || r.asked.Save // read even if the result stays the same, because reading clears the request
	r.asked.Save = false
	if asked || r.saver.Overdue() {
		return pipeline.Save
	}
	return pipeline.Nothing
}

// save continues the checkpoint that is being written, and the release of ranks. It begins a
// save if one is due and the earlier one has ended. The last step waits for its checkpoint.
// Collective.
func (r *Rank) save(t *turn) error {
	out, steps := t.out, t.step+1
	last := out.Stopped || t.restarts != nil || steps == r.Config.Train.Steps
	var err error
	if last || t.packs && r.Terms.Ends() || t.agreed.Ask >= pipeline.Save || r.saver.DueAt(steps) {
		err = r.writeCheckpoint(t, last)
	} else {
		err = r.saver.Advance(r.world)
	}
	if err != nil {
		return err
	}
	if r.saver != nil {
		out.Saved, _ = r.saver.Newest()
	}
	if t.restarts != nil && out.Saved == steps {
		out.Next, out.Stopped = t.restarts, true
		if err := r.journal.Packed(t.told); err != nil {
			return err
		}
	}
	return r.poll(out.Saved)
}

// writeCheckpoint begins a checkpoint, and waits for its end if it is the last. Collective.
func (r *Rank) writeCheckpoint(t *turn, last bool) error {
	if r.saver == nil {
		return nil
	}
	if err := r.saver.Finish(r.world); err != nil {
		return err
	}
	if err := r.settle(); err != nil {
		return err
	}
	at := checkpoint.Point{Steps: t.step + 1, World: r.world, Layout: r.layout, Stage: r.stage, Skipped: r.skipped, Spent: r.spent}
	if t.agreed.Finite() && r.Config.Dynamic.Replay == "" {
		at.Loss = &t.agreed.Loss
	}
	if r.world.All.Rank() == 0 {
		at.State = checkpoint.NewState(r.ranks(r.world.All.Hosts()), r.keepers(), r.Balancer.KnownReference(), r.products)
	}
	if err := r.saver.Begin(at); err != nil || !last {
		return err
	}
	return r.saver.Finish(r.world)
}
