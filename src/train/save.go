package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"dynmo/src/comm"
	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/record"
	"dynmo/src/store"
)

const (
	// firstAuto is the time to the first checkpoint where the settings leave the time
	// between two to what one takes: that is not known yet.
	firstAuto = time.Minute
	// mostFailures is how many checkpoints in a row may fail before the run ends.
	mostFailures = 3
)

// saver writes checkpoints on one rank. Between two steps layers are copied; a
// goroutine writes the copies while steps go on. After every step ranks tell each other
// whether theirs are on disk; then rank 0 gives the checkpoint its name.
type saver struct {
	dir      string // "" writes none
	shot     store.Snapshot
	phase    savePhase
	ended    chan error            // of the goroutine
	files    map[string]store.File // that this rank wrote
	manifest store.Manifest        // of the checkpoint that is being written
	bytes    int64                 // of all ranks, that are to be written
	began    time.Time             // when its copy began
	blocked  time.Duration         // what the copy took
	took     time.Duration         // from began to the name, of the last one
	saved    int                   // steps that the last one holds; 0: there is none
	failures int                   // in a row
}

// savePhase is how far a checkpoint is.
type savePhase uint8

const (
	saveIdle savePhase = iota
	saveWrite
	saveCommit
)

// place is where a run is between two steps.
type place struct {
	steps int // that are done
	world elastic.World
	layout.Layout
	stage *model.Stage
}

// startSaver makes ready for checkpoints in the run directory, if there is one.
func (r *Rank) startSaver() error {
	if r.RunDir == "" || r.Config.Checkpoint.Every == "never" {
		return nil
	}
	r.saver = saver{dir: filepath.Join(r.RunDir, store.Directory), ended: make(chan error, 1), began: time.Now(), saved: r.resumed.Step}
	var err error
	if r.World.Rank() == 0 {
		if err = store.Clean(r.saver.dir); err != nil {
			err = fmt.Errorf("checkpoints: %w", err)
		}
	}
	return Agree(r.World, err, false)
}

// ask returns what this rank is asked for after the step: by signals, or on rank 0 by
// the time since the last checkpoint.
func (r *Rank) ask() pipeline.Ask {
	if r.Stop() || r.asked.Stop {
		return pipeline.Stop
	}
	asked := r.Save != nil && r.Save() || r.asked.Save // also where it changes nothing: it was heard
	r.asked.Save = false
	if asked || r.World.Rank() == 0 && r.saver.dir != "" && r.saver.phase == saveIdle && time.Since(r.saver.began) >= r.between() {
		return pipeline.Save
	}
	return pipeline.Nothing
}

// between returns the most time between the beginnings of two checkpoints. Where the
// settings leave it to what a checkpoint takes, δ, it is sqrt(2·δ·MTTI), after which
// the work that is lost by interruptions and the time spent on checkpoints are the
// least (Young 1974).
func (r *Rank) between() time.Duration {
	c := r.Config.Checkpoint
	most := time.Duration(math.MaxInt64)
	if c.Minutes > 0 {
		most = time.Duration(c.Minutes * float64(time.Minute))
	}
	if c.Every != "auto" {
		return most
	}
	if r.saver.took == 0 {
		return min(most, firstAuto)
	}
	return min(most, time.Duration(math.Sqrt(2*r.saver.took.Seconds()*c.MTTI*3600)*float64(time.Second)))
}

// dueAt reports whether the settings want a checkpoint after so many steps.
func (r *Rank) dueAt(steps int) bool {
	n, err := strconv.Atoi(r.Config.Checkpoint.Every)
	return err == nil && steps%n == 0
}

// save goes on with the checkpoint that is being written, and begins one where it is
// due, once that before it has ended: also where ranks are about to leave. The last step
// waits for its own. Collective.
func (r *Rank) save(at place, a pipeline.Agreement, leaving, last bool) error {
	if r.saver.dir == "" {
		return nil
	}
	if !last && !leaving && a.Ask < pipeline.Save && !r.dueAt(at.steps) {
		return r.advance(at.world, false)
	}
	if err := r.finishSaving(at.world); err != nil {
		return err
	}
	if err := r.beginSaving(at, a); err != nil || !last {
		return err
	}
	return r.finishSaving(at.world)
}

// slowestDisk is the rate, in bytes per second of all ranks together, at which writing is
// still taken to get on.
const slowestDisk = 10e6

// finishSaving waits for the checkpoint that is being written. Collective.
func (r *Rank) finishSaving(w elastic.World) error {
	if r.saver.phase != saveIdle {
		limit := startFor + time.Duration(float64(r.saver.bytes)/slowestDisk*float64(time.Second))
		w.All.SetDeadline(limit)
		w.All.SetPatience(limit)
		w.All.Post().SetPatience(limit)
	}
	for r.saver.phase != saveIdle {
		if err := r.advance(w, true); err != nil {
			return err
		}
	}
	return nil
}

// beginSaving copies this rank's share of its stage's layers, and begins to write it.
// Collective.
func (r *Rank) beginSaving(at place, a pipeline.Agreement) error {
	if err := r.settle(); err != nil {
		return err
	}
	k := &r.saver
	k.began, k.phase = time.Now(), saveWrite
	k.manifest = store.Manifest{
		Step: at.steps, Skipped: r.skipped, Settings: r.Config.TOML(), Layout: at.Layout,
		DType: r.Backend.DType().String(), Layers: r.Config.Layers(),
	}
	if a.Finite() {
		k.manifest.Loss = &a.Loss
	}
	err := k.shot.Take(at.stage.Layers, store.Share{Replica: at.world.Replicas.Rank(), Of: at.world.Replicas.Size()}, r.x.Stream)
	if err := r.addState(at.world); err != nil {
		return err
	}
	k.blocked = time.Since(k.began)
	total := []int64{k.shot.Bytes()}
	if err := comm.Allreduce(at.world.All, total, func(a, b int64) int64 { return a + b }); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	k.bytes = total[0]
	go func() {
		if err == nil {
			err = store.Room(k.dir, total[0])
		}
		if err == nil {
			k.files, err = k.shot.Write(k.dir, k.manifest.Step, r.killer(k.manifest.Step))
		}
		k.ended <- err
	}()
	return nil
}

// advance takes a checkpoint to its next phase once every rank has done its part.
// Collective.
func (r *Rank) advance(w elastic.World, wait bool) error {
	k := &r.saver
	if k.phase == saveIdle {
		return nil
	}
	var failed error
	waiting := []int64{0, 0} // ranks that are not done, that failed
	if len(k.ended) == 0 && !wait {
		waiting[0] = 1
	} else {
		if failed = <-k.ended; failed != nil {
			waiting[1] = 1
		}
		k.ended <- failed // until all are done
	}
	if err := comm.Allreduce(w.All, waiting, func(a, b int64) int64 { return a + b }); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if waiting[0] > 0 {
		return nil
	}
	<-k.ended
	switch {
	case waiting[1] > 0:
		return r.abandon(w, failed)
	case k.phase == saveWrite:
		return r.commit(w)
	}
	k.phase, k.failures, k.saved, k.took = saveIdle, 0, k.manifest.Step, time.Since(k.began)
	return r.journal.Saved(k.manifest.Step, record.Save{Seconds: k.took.Seconds(), Blocked: k.blocked.Seconds(), Bytes: bytesOf(k.manifest)})
}

// commit gives a checkpoint its name, beside the steps too. Collective.
func (r *Rank) commit(w elastic.World) error {
	k := &r.saver
	k.phase = saveCommit
	text, err := json.Marshal(k.files)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	all, err := w.All.Gather(0, text)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if w.All.Rank() != 0 {
		k.ended <- nil
		return nil
	}
	k.manifest.Files = make(map[string]store.File)
	for _, b := range all {
		var files map[string]store.File
		if err := json.Unmarshal(b, &files); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		maps.Copy(k.manifest.Files, files)
	}
	k.manifest.Corpus, k.manifest.Sparsity = r.Corpus.Hash(), r.journal.Sparsity()
	go func() {
		k.ended <- store.Commit(k.dir, k.manifest, r.Config.Checkpoint.Keep, r.killer(k.manifest.Step))
	}()
	return nil
}

// Killer returns what is to be called in every phase of writing the checkpoint after so
// many steps, or of a move after them; nil unless a fault is wanted there.
func (r *Rank) killer(steps int) func(fault.Phase) {
	me := r.World.Peer(r.World.Rank())
	return r.Fault.Killer(steps, me.World, func(rank int) int {
		if rank < r.World.Size() && r.World.Peer(rank).Host == me.Host {
			return r.World.Peer(rank).PID
		}
		return 0
	})
}

// abandon gives up a checkpoint that some rank could not write: training goes on, and
// the checkpoint before it stays. Too many in a row end the run. Collective.
func (r *Rank) abandon(w elastic.World, failed error) error {
	k := &r.saver
	k.phase = saveIdle
	k.failures++
	why := Agree(w.All, failed, false)
	if _, ok := errors.AsType[SharedError](why); !ok {
		return why
	}
	if w.All.Rank() == 0 {
		why = errors.Join(why, store.Discard(k.dir, k.manifest.Step))
	}
	if k.failures >= mostFailures {
		return SharedError{error: UnsavedError{fmt.Errorf("checkpoint: %d in a row failed: %w", k.failures, why)}}
	}
	return r.journal.Unsaved(k.manifest.Step, why)
}

// bytesOf returns what a checkpoint's files have together.
func bytesOf(m store.Manifest) (n int64) {
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}
