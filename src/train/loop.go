package train

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/dynamic"
	"dynmo/src/elastic"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/pipeline"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/record"
)

// Outcome is how a run ended, the same on every rank.
type Outcome struct {
	Steps   int           // after which the run ended
	Loss    float64       // of the last step
	Stopped bool          // asked to end before the last step
	Saved   int           // after which the last checkpoint was written; 0: there is none
	Left    bool          // this rank was given back: the others went on without it
	Next    *elastic.Next // smaller allocation on which the run starts again; nil: no restart
	Hash    string        // of the final weights, if train.hash is set
}

// turn is the state of one step: each phase of the loop leaves its results here for later phases.
type turn struct {
	step  int
	began time.Duration // by comm.Ran, moved on by the time of validation
	ran   layout.Layout

	change     dynamic.Change
	start      float64 // of forward and backward, by the device's clock
	done       pipeline.Result
	agreed     pipeline.Agreement
	skipped    bool  // the update was left out
	diverged   error // ends the run once the step is recorded
	validation *record.Validation
	measuring  float64             // start of measuring
	measured   profile.Measurement // complete on the root only
	stragglers []record.Straggler
	next       layout.Layout // layout that was decided
	relocation *relocation   // the move to next; nil: no layer moves
	why        plan.Reason   // reason of the decision, on the root
	restarts   *elastic.Next // smaller allocation on which the run starts again instead of moving; nil: layers move
	packs      bool
	deciding   float64 // when the decision began
	moving     float64 // when layers began to move
	moved      layout.Moved
	told       record.Done
	out        *Outcome
}

// Loop trains (paper, Algorithm 1). Each step goes through the phases in their order. World, layout
// and stage at the end of a step are those of the next step. Collective over all ranks.
func (r *Rank) Loop() (out Outcome, err error) {
	if err := r.start(); err != nil {
		return out, fmt.Errorf("start: %w", err)
	}
	out.Steps, out.Loss, out.Saved = r.from.Step, r.from.Loss, r.from.Step
	phases := []struct {
		room comm.Room
		run  func(*turn) error
	}{
		{comm.RoomDynamic, r.change},      // the dynamism changes the model
		{comm.RoomPipeline, r.compute},    // forward and backward of all microbatches; gradients are summed over replicas
		{comm.RoomUpdate, r.update},       // one agreement on loss and norm, then the optimizer
		{comm.RoomValidation, r.validate}, // now and then: the loss of data that the model is not trained on
		{comm.RoomProfile, r.measure},     // costs and memory of the step are gathered on the root
		{comm.RoomBalance, r.decide},      // the root decides in which layout the next step runs
		{comm.RoomMigrate, r.migrate},     // layers move to the stages of that layout; ranks without layers leave
		{comm.RoomRecord, r.record},       // rank 0 reports the step
		{comm.RoomSave, r.save},           // a checkpoint is written while later steps run; the last step waits for its checkpoint
	}
	post, steps := r.World.Post(), r.Config.Train.Steps
	for step := r.from.Step; step < steps && !out.Stopped; step++ {
		t := &turn{step: step, began: comm.Ran(), ran: r.layout, out: &out}
		for _, phase := range phases {
			post.Enter(step, phase.room)
			if r.Phase != nil {
				r.Phase(r.World, step, phase.room)
			}
			if err := phase.run(t); err != nil {
				return out, fmt.Errorf("step %d: %w", step, r.finishSaving(err))
			}
			if out.Left {
				return out, nil
			}
		}
		r.pace.took(comm.Ran() - t.began)
	}
	return out, r.end(&out)
}

// start sets the clocks, and starts the journal, the writer of checkpoints and the release of
// ranks. Collective.
func (r *Rank) start() (err error) {
	if r.World.Rank() == 0 {
		r.ran = r.problem
		r.journal = record.NewJournal(r.Observe, r.Config, r.Device.Clock().Kind(), r.World.Hosts())
		r.journal.Resume(r.from.Sparsity)
	}
	if err := r.startClock(); err != nil {
		return err
	}
	r.saver = checkpoint.NewWriter(checkpoint.Setup{
		RunDir: r.RunDir, Config: r.Config, World: r.World, Exec: r.x, Corpus: r.Corpus, Journal: r.journal,
		Saved: r.from.Step, Wait: startFor, Reached: r.killer,
	})
	if r.journal != nil && r.RunDir != "" && r.products != nil {
		if err := record.KeepProducts(r.RunDir, r.products); err != nil {
			return err
		}
	}
	return r.startReleases()
}

// finishSaving completes the checkpoint in progress after an error that all ranks have. The
// save was copied before the error. Collective if the error is a comm.SharedError.
func (r *Rank) finishSaving(err error) error {
	if _, shared := errors.AsType[comm.SharedError](err); !shared {
		return err
	}
	if failed := r.saver.Finish(r.world); failed != nil {
		return errors.Join(err, failed)
	}
	_ = r.world.All.Barrier() // without it, a rank that returns first would end rank 0 before rank 0 has recorded
	return err
}

// end closes the records and completes the outcome of the run. Collective.
func (r *Rank) end(out *Outcome) (err error) {
	if err := r.settle(); err != nil {
		return err
	}
	_, took := r.saver.Newest()
	if err := errors.Join(r.journal.Restart(r.RunDir, out.Steps, out.Next, took), r.finishReleases(), r.journal.End()); err != nil {
		return err
	}
	if r.Config.Train.Hash {
		if out.Hash, err = migrate.Hash(r.x, r.world.Stages, r.world.Replicas, r.layout, r.stage); err != nil {
			return err
		}
	}
	return r.dismiss()
}
