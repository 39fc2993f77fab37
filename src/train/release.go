package train

import (
	"errors"
	"fmt"
	"math"
	"time"

	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/record"
)

// startReleases prepares the release of ranks that will have no layer.
func (r *Rank) startReleases() error {
	if r.Terms == nil {
		r.Terms = &elastic.Terms{Mode: elastic.Park}
		if wanted := elastic.Mode(r.Config.Elastic.Release); r.Config.Packs() && (wanted == elastic.Slurm || wanted == elastic.Restart) {
			r.journal.Warn(fmt.Sprintf("elastic.release = %q: ranks of one process have no nodes to give back, want `srun --mpi=pmix`", wanted))
		}
		return nil
	}
	if r.Terms.Mode == elastic.Restart && r.saver == nil {
		t := *r.Terms
		t.Mode, t.Unmet = elastic.Park, `elastic.release = "restart": the run keeps no checkpoint, want a run directory and checkpoint.every other than "never"`
		r.Terms = &t
	}
	if r.World.Rank() != 0 {
		return nil
	}
	if r.Terms.Unmet != "" {
		r.journal.Warn(r.Terms.Unmet + "; ranks that come to hold no layer wait for the end of the run")
	}
	r.releases = elastic.NewReleases(r.World, *r.Terms)
	r.releases.Reached = r.reached
	if r.Terms.Mode != elastic.Slurm {
		return nil
	}
	r.releases.Scheduler = r.Terms.Job
	r.releases.Retry = time.Duration(r.Config.Elastic.RetrySeconds * float64(time.Second))
	if r.RunDir == "" {
		return nil
	}
	r.releases.Note = func(nodes []string) error { return record.NoteReleased(r.RunDir, nodes) }
	return record.ForgetReleased(r.RunDir)
}

// Await waits for rank 0's order, on a rank that has left the pipeline after `steps` steps. Such a
// rank keeps nothing except the launched world.
func (r *Rank) Await(steps int) (elastic.Order, error) {
	save := r.Save
	if save == nil {
		save = func() bool { return false }
	}
	return elastic.Await(r.World, steps, r.Stop, save, r.reached(steps))
}

// killer returns the function that injects a fault into the writing of a checkpoint, or into a
// move. The caller calls it in every phase of the work after `steps` steps. nil: no fault is
// injected there.
func (r *Rank) killer(steps int) func(fault.Phase) {
	me := r.World.Peer(r.World.Rank())
	return r.Fault.Killer(steps, me.World, func(rank int) int {
		if rank < r.World.Size() && r.World.Peer(rank).Host == me.Host {
			return r.World.Peer(rank).PID
		}
		return 0
	})
}

// reached returns the function that a leaving rank calls in every phase of leaving.
func (r *Rank) reached(steps int) func(fault.Phase) {
	if kill := r.killer(steps); kill != nil {
		return kill
	}
	return func(fault.Phase) {}
}

// poll continues the release of ranks. saved is the number of steps in the last checkpoint.
func (r *Rank) poll(saved int) error {
	if r.releases == nil {
		return nil
	}
	if r.saver == nil {
		saved = math.MaxInt
	}
	ended, asked, err := r.releases.Poll(saved)
	r.asked.Stop, r.asked.Save = r.asked.Stop || asked.Stop, r.asked.Save || asked.Save
	return errors.Join(err, r.journal.Released(r.Terms.Mode, ended))
}

// finishReleases completes the releases on rank 0, while the other ranks wait.
func (r *Rank) finishReleases() error {
	if r.world.All.Size() < r.World.Size() {
		r.expectSlow()
	}
	if r.releases == nil {
		return nil
	}
	ended, err := r.releases.Finish()
	return errors.Join(err, r.journal.Released(r.Terms.Mode, ended))
}

// dismiss sends ranks without layers the order to end.
func (r *Rank) dismiss() error {
	if r.releases == nil {
		return nil
	}
	silent, err := r.releases.Dismiss()
	if len(silent) > 0 {
		r.journal.Warn(fmt.Sprintf("ranks %s do not end with the others", record.Ranges(silent)))
	}
	return err
}
