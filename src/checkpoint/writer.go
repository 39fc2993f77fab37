package checkpoint

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
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/record"
)

const (
	// firstAuto is the time until the first checkpoint if checkpoint.every is "auto". Before it the
	// cost of a checkpoint is not known.
	firstAuto = time.Minute
	// mostFailures is the number of consecutive failed checkpoints that ends the run.
	mostFailures = 3
	// slowestDisk is the slowest rate of writing, in bytes per second of all ranks together, at
	// which a checkpoint does not count as stuck.
	slowestDisk = 10e6
)

// UnsavedError ends a run after several consecutive checkpoints could not be written.
type UnsavedError struct{ error }

// Unwrap returns the error itself.
func (e UnsavedError) Unwrap() error { return e.error }

// Setup is the input of NewWriter.
type Setup struct {
	RunDir  string // "": no checkpoints
	Config  config.Config
	World   *comm.Group // the launched world
	Exec    *model.Exec // its stream runs the work of the stage
	Corpus  *data.Corpus
	Journal *record.Journal
	Saved   int           // steps in the newest checkpoint; 0: there is none
	Wait    time.Duration // how long ranks wait for each other, in addition to the time of the disk
	// Reached returns the function to call in every phase of the checkpoint after `steps` steps. It
	// may return nil.
	Reached func(steps int) func(fault.Phase)
}

// Writer writes checkpoints on one rank. A nil Writer writes none.
type Writer struct {
	Setup
	dir      string
	shot     Snapshot
	phase    phase
	ended    chan error      // receives the result of the writing goroutine
	files    map[string]File // files that this rank wrote
	manifest Manifest        // of the checkpoint in progress
	bytes    int64           // of all ranks, not yet written
	began    time.Time       // begin of the last copy
	ran      time.Duration   // comm.Ran at that time
	blocked  time.Duration   // duration of the copy
	took     time.Duration   // time that the last checkpoint took until it had its name, in which this process ran
	failures int             // consecutive failures
	left     error           // reason why old checkpoints stay after the last one
	warned   string          // last reported reason of this kind
}

// phase is the progress of a checkpoint.
type phase uint8

const (
	idle phase = iota
	writing
	committing
)

// Point is the state of a run between two steps.
type Point struct {
	Steps   int // number of completed steps
	World   elastic.World
	Layout  layout.Layout
	Stage   *model.Stage
	Loss    *float64 // of the last step; nil: it was not finite
	Skipped int      // consecutive skipped updates
	Spent   float64  // seconds after the last step
	State   State    // of rank 0, without hosts and times
}

// NewWriter returns a writer for the run directory; nil if the settings want no checkpoint.
func NewWriter(s Setup) *Writer {
	if s.RunDir == "" || s.Config.Checkpoint.Every == "never" {
		return nil
	}
	w := &Writer{Setup: s, dir: filepath.Join(s.RunDir, record.CheckpointDir), ended: make(chan error, 1), began: time.Now()}
	if s.World.Rank() == 0 {
		w.warn(clean(w.dir))
	}
	return w
}

// warn reports what a checkpoint left behind, unless the last report was the same.
func (w *Writer) warn(left error) {
	if left == nil || left.Error() == w.warned {
		return
	}
	w.warned = left.Error()
	w.Journal.Warn(w.warned)
}

// Newest returns the number of steps in the newest checkpoint, and the time that writing it took. A
// nil Writer has none.
func (w *Writer) Newest() (steps int, took time.Duration) {
	if w == nil {
		return 0, 0
	}
	return w.Saved, w.took
}

// Overdue reports, on rank 0, whether a checkpoint is due by the time since the last one.
func (w *Writer) Overdue() bool {
	return w != nil && w.World.Rank() == 0 && w.phase == idle && time.Since(w.began) >= w.between()
}

// between returns the longest time between the begins of two checkpoints. With "auto" and a
// checkpoint time δ it is sqrt(2·δ·MTTI). At this interval the time lost to interruptions and the
// time spent on checkpoints are together the least (Young 1974).
func (w *Writer) between() time.Duration {
	c := w.Config.Checkpoint
	most := time.Duration(math.MaxInt64)
	if c.Minutes > 0 {
		most = time.Duration(c.Minutes * float64(time.Minute))
	}
	if c.Every != "auto" {
		return most
	}
	if w.took == 0 {
		return min(most, firstAuto)
	}
	return min(most, time.Duration(math.Sqrt(2*w.took.Seconds()*c.MTTI*3600)*float64(time.Second)))
}

// DueAt reports whether the settings want a checkpoint after the given number of steps.
func (w *Writer) DueAt(steps int) bool {
	if w == nil {
		return false
	}
	n, err := strconv.Atoi(w.Config.Checkpoint.Every)
	return err == nil && steps%n == 0
}

// Finish waits for the checkpoint in progress. Collective over the world.
func (w *Writer) Finish(world elastic.World) error {
	if w == nil || w.phase == idle {
		return nil
	}
	limit := w.Wait + time.Duration(float64(w.bytes)/slowestDisk*float64(time.Second))
	world.All.SetDeadline(limit)
	world.All.SetPatience(limit)
	world.All.Post().SetPatience(limit)
	for w.phase != idle {
		if err := w.advance(world, true); err != nil {
			return err
		}
	}
	return nil
}

// Begin copies this rank's share of its stage's layers and starts to write it. No checkpoint may be
// in progress. Collective.
func (w *Writer) Begin(at Point) error {
	w.began, w.ran, w.phase = time.Now(), comm.Ran(), writing
	w.manifest = Manifest{
		Step: at.Steps, Skipped: at.Skipped, Settings: w.Config.TOML(), Layout: at.Layout, Loss: at.Loss,
		DType: w.Exec.Backend.DType().String(), Layers: w.Config.Layers(),
	}
	err := w.shot.Take(at.Stage.Layers, Share{
		Replica: at.World.Replicas.Rank(), Of: at.World.Replicas.Size(), Replicas: at.World.Replicas,
	}, w.Exec.Stream)
	if err := w.addState(at); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	w.blocked = time.Since(w.began)
	total := []int64{w.shot.Bytes()}
	if err := comm.Allreduce(at.World.All, total, func(a, b int64) int64 { return a + b }); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	w.bytes = total[0]
	go func() {
		if err == nil {
			err = room(w.dir, total[0])
		}
		if err == nil {
			w.files, err = w.shot.Write(w.dir, w.manifest.Step, w.Reached(w.manifest.Step))
		}
		w.ended <- err
	}()
	return nil
}

// addState adds the state of the run to the checkpoint. Collective.
func (w *Writer) addState(at Point) error {
	spent := []float64{at.Spent}
	if err := comm.Allreduce(at.World.All, spent, func(a, b float64) float64 { return max(a, b) }); err != nil {
		return err
	}
	if at.World.All.Rank() != 0 {
		return nil
	}
	at.State.Hosts, at.State.Spent = at.World.All.Hosts(), spent[0]
	text, err := json.Marshal(at.State)
	w.shot.AddRun(text)
	return err
}

// Advance moves a checkpoint to its next phase if every rank has finished the present one.
// Collective.
func (w *Writer) Advance(world elastic.World) error {
	if w == nil {
		return nil
	}
	return w.advance(world, false)
}

// advance is Advance. With wait it waits for this rank's part.
func (w *Writer) advance(world elastic.World, wait bool) error {
	if w.phase == idle {
		return nil
	}
	var failed error
	waiting := []int64{0, 0} // number of ranks that are not done, and of ranks that failed
	if len(w.ended) == 0 && !wait {
		waiting[0] = 1
	} else {
		if failed = <-w.ended; failed != nil {
			waiting[1] = 1
		}
		w.ended <- failed // keep the result until all ranks are done
	}
	if err := comm.Allreduce(world.All, waiting, func(a, b int64) int64 { return a + b }); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if waiting[0] > 0 {
		return nil
	}
	<-w.ended
	switch {
	case waiting[1] > 0:
		return w.abandon(world, failed)
	case w.phase == writing:
		return w.commit(world)
	}
	w.phase, w.failures, w.Saved, w.took = idle, 0, w.manifest.Step, comm.Ran()-w.ran
	w.warn(w.left)
	return w.Journal.Saved(w.Saved, record.Save{Seconds: w.took.Seconds(), Blocked: w.blocked.Seconds(), Bytes: bytesOf(w.manifest)})
}

// commit gives a checkpoint its final name, while training continues. Collective.
func (w *Writer) commit(world elastic.World) error {
	w.phase = committing
	text, err := json.Marshal(w.files)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	all, err := world.All.Gather(0, text)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if world.All.Rank() != 0 {
		w.ended <- nil
		return nil
	}
	w.manifest.Files = make(map[string]File)
	for _, b := range all {
		var files map[string]File
		if err := json.Unmarshal(b, &files); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		maps.Copy(w.manifest.Files, files)
	}
	w.manifest.Corpus, w.manifest.Sparsity = w.Corpus.Hash(), w.Journal.Sparsity()
	go func() {
		reached := w.Reached(w.manifest.Step)
		err := Commit(w.dir, w.manifest, reached)
		if err == nil {
			w.left = tidy(w.dir, w.manifest.Step, w.Config.Checkpoint.Keep, reached)
		}
		w.ended <- err
	}()
	return nil
}

// abandon drops a checkpoint that some rank could not write. Training continues and the previous
// checkpoint stays. Too many consecutive failures end the run. Collective.
func (w *Writer) abandon(world elastic.World, failed error) error {
	w.phase = idle
	w.failures++
	why := comm.Agree(world.All, failed, false)
	if _, ok := errors.AsType[comm.SharedError](why); !ok {
		return why
	}
	if world.All.Rank() == 0 {
		why = errors.Join(why, discard(w.dir, w.manifest.Step))
	}
	if w.failures >= mostFailures {
		return comm.Shared(UnsavedError{fmt.Errorf("checkpoint: %d in a row failed: %w", w.failures, why)})
	}
	return w.Journal.Unsaved(w.manifest.Step, why)
}

// bytesOf returns the total bytes of a checkpoint's files.
func bytesOf(m Manifest) (n int64) {
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}
