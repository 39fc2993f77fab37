package train

import (
	"errors"
	"fmt"
	"time"

	"dynmo/src/comm"
	"dynmo/src/dynamic"
	"dynmo/src/elastic"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/pipeline"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/record"
)

// Outcome is how a run ended, the same on every rank.
type Outcome struct {
	Steps   int           // steps that were run
	Loss    float64       // of the last step
	Stopped bool          // asked to end before the last step
	Saved   int           // steps that the last checkpoint holds; 0: there is none
	Left    bool          // this rank was given back: the others went on without it
	Next    *elastic.Next // on what the run is to go on, for which it has ended; nil: it has not
	Hash    string        // of the final weights, if train.hash is set
}

// turn is one step as it goes round the loop: what each phase leaves for later ones.
type turn struct {
	step  int
	began time.Time // without the time of validation
	ran   layout.Layout

	change     dynamic.Change
	start      float64 // by the clock
	done       pipeline.Result
	agreed     pipeline.Agreement
	skipped    bool  // the update was left out
	diverged   error // ends the run once the step is recorded
	validation *record.Validation
	measuring  float64             // when what follows the step began
	measured   profile.Measurement // of the root
	stragglers []record.Straggler
	next       layout.Layout // that was decided
	relocation *relocation   // what is known of the move to it; nil: there is none
	why        policy.Reason // of the root
	restarts   *elastic.Next // on what the run is to go on instead of moving; nil: it moves
	packs      bool
	moving     float64 // when layers began to move
	moved      migrate.Moved
	told       record.Done
	out        *Outcome
}

// Loop trains (paper, Algorithm 1). Each step goes through the phases in their order; the
// place that a step leaves is where the next one starts. Collective over all ranks.
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
		{comm.RoomValidation, r.validate}, // at times, the loss of data that nothing is trained on
		{comm.RoomProfile, r.measure},     // what the step showed, on one rank
		{comm.RoomBalance, r.decide},      // that rank decides in which layout the next step runs
		{comm.RoomMigrate, r.migrate},     // layers go where that has them, and ranks that it has no place for go
		{comm.RoomRecord, r.record},       // rank 0 tells what happened
		{comm.RoomSave, r.save},           // a checkpoint is written while steps go on, except the last one
	}
	post, steps := r.World.Post(), r.Config.Train.Steps
	for step := r.from.Step; step < steps && !out.Stopped; step++ {
		t := &turn{step: step, began: time.Now(), ran: r.layout, out: &out}
		for _, phase := range phases {
			post.Enter(step, phase.room)
			if r.Phase != nil {
				r.Phase(r.World, step, phase.room)
			}
			if err := phase.run(t); err != nil {
				return out, fmt.Errorf("step %d: %w", step, err)
			}
			if out.Left {
				return out, nil
			}
		}
		r.pace.took(time.Since(t.began))
	}
	return out, r.end(&out)
}

// start sets the clocks, and makes ready for what goes on beside the steps. Collective.
func (r *Rank) start() (err error) {
	if r.World.Rank() == 0 {
		r.journal = record.NewJournal(r.Observe, r.planner, r.Config, r.Device.Clock().Kind(), r.World.Hosts())
		r.journal.Resume(r.from.Sparsity)
	}
	if err := r.startClock(); err != nil {
		return err
	}
	if err := r.startSaver(); err != nil {
		return err
	}
	if r.journal != nil && r.RunDir != "" && r.products != nil {
		if err := record.KeepProducts(r.RunDir, r.products); err != nil {
			return err
		}
	}
	return r.startReleases()
}

// end closes the records and completes how the run ended. Collective.
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
