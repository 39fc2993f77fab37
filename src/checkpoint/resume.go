package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/weights"
)

// Resumed describes the checkpoint from which a run resumed; zero for a new run.
type Resumed struct {
	Step    int      // number of completed steps
	From    string   // directory of the checkpoint
	Damaged []string // the reasons why newer checkpoints were not used
	Changed []string // a line for each setting that differs from the checkpoint's
	Anew    string   // the reason why measurements and the balancer start from nothing; "" if they do not
	// Otherwise is the reason why dense products use other algorithms than before, so that losses
	// agree only up to rounding; "" if they do not.
	Otherwise string
}

// Loaded is the data with which a rank resumes.
type Loaded struct {
	Resumed
	Was      config.Config // settings of the run that wrote the checkpoint
	Layout   layout.Layout
	Stage    *model.Stage // of this rank
	Loss     float64      // of the last step; NaN if it was not finite
	Sparsity float64
	Skipped  int    // consecutive skipped updates before the checkpoint
	State    []byte // input of ReadState; empty in an older version
}

// Reader finds and reads a checkpoint on one rank.
type Reader struct {
	Config config.Config
	World  *comm.Group
	Exec   *model.Exec
	Corpus *data.Corpus
	Layout layout.Layout // of the first step of a new run
	Stage  int           // of this rank
	Shape  model.Config
}

// candidates is the list of a run's checkpoints that rank 0 sends to the others.
type candidates struct {
	Whole   []*Checkpoint
	Damaged []string
}

// Newest reads this rank's first stage from the newest usable checkpoint of a run directory. A
// checkpoint is usable if every rank can read its layers. Newest returns nil if the directory has
// no checkpoint: the same command starts or resumes a run. Collective.
func (r *Reader) Newest(runDir string) (*Loaded, error) {
	all, err := r.candidates(runDir)
	if err != nil {
		return nil, err
	}
	for _, c := range all.Whole {
		was, changed, err := r.suits(c)
		if err != nil {
			return nil, comm.Input(err)
		}
		found := &Loaded{
			Resumed: Resumed{Step: c.Step, From: c.Dir, Damaged: all.Damaged, Changed: changed},
			Was:     was, Layout: r.Layout, Loss: math.NaN(), Sparsity: c.Sparsity, Skipped: c.Skipped,
		}
		if r.keepsLayout(c, was) {
			found.Layout = c.Layout
		}
		if c.Loss != nil {
			found.Loss = *c.Loss
		}
		err = r.read(c, found)
		if err = comm.Agree(r.World, err, false); err == nil {
			debug.FreeOSMemory() // free the memory of reading
			if found.State, err = r.World.Bcast(0, found.State); err != nil {
				return nil, fmt.Errorf("resume: %w", err)
			}
			return found, nil
		}
		if _, ok := errors.AsType[comm.SharedError](err); !ok {
			return nil, err
		}
		found.Stage.Free()
		all.Damaged = append(all.Damaged, err.Error())
	}
	if len(all.Damaged) > 0 {
		return nil, comm.Input(fmt.Errorf("--resume: no whole checkpoint in %s: %s", runDir, all.Damaged[0]))
	}
	return nil, nil
}

// candidates returns, on every rank, the checkpoints that rank 0 finds in the run directory.
// Collective.
func (r *Reader) candidates(runDir string) (all candidates, err error) {
	var text []byte
	var failed error
	if r.World.Rank() == 0 {
		var damaged []error
		all.Whole, damaged, failed = All(runDir)
		for _, err := range damaged {
			all.Damaged = append(all.Damaged, err.Error())
		}
		if failed == nil && len(all.Whole) > 0 && all.Whole[0].Corpus != r.Corpus.Hash() {
			failed = fmt.Errorf("data.path: text with hash %.12s, the checkpoint's run trained on %.12s: may not change on resume", r.Corpus.Hash(), all.Whole[0].Corpus)
		}
		if failed == nil {
			text, failed = json.Marshal(all)
		}
	}
	if err := comm.Agree(r.World, failed, true); err != nil {
		return all, err
	}
	if text, err = r.World.Bcast(0, text); err != nil {
		return all, fmt.Errorf("resume: %w", err)
	}
	all = candidates{}
	if err := json.Unmarshal(text, &all); err != nil {
		return all, fmt.Errorf("resume: %w", err)
	}
	return all, nil
}

// suits returns an error unless a checkpoint has this model and its settings may change to this
// run's. It returns the checkpoint's settings, and a line for each setting that differs.
func (r *Reader) suits(c *Checkpoint) (was config.Config, changed []string, err error) {
	was, unknown, err := c.Config()
	if err != nil {
		return was, nil, err
	}
	if changed, err = r.Config.Resume(was, unknown); err != nil {
		return was, nil, err
	}
	if c.Layers != r.Config.Layers() {
		return was, nil, fmt.Errorf("checkpoint %s: %d layers, the settings describe %d", c.Dir, c.Layers, r.Config.Layers())
	}
	if want := r.Exec.Backend.DType().String(); c.DType != want {
		return was, nil, fmt.Errorf("checkpoint %s: weights of %s, this run's kernels take %s", c.Dir, c.DType, want)
	}
	return was, changed, nil
}

// keepsLayout reports whether a run resumes in the layout of a checkpoint. It does if the settings
// that determine layouts are unchanged. If the balancer has changed and never moves layers, the run
// takes the cuts of the new balancer.
func (r *Reader) keepsLayout(c *Checkpoint, was config.Config) bool {
	now := r.Config
	return c.Layout.Mesh == r.Layout.Mesh && c.Layout.Schedule.Microbatches == now.Parallel.Microbatches && was.Parallel == now.Parallel && was.Schedule == now.Schedule &&
		(was.Balance == now.Balance || now.Balance.Moves() && was.Balance.MemoryLimitBytes == now.Balance.MemoryLimitBytes)
}

// read reads the layers of this rank's first stage, and on rank 0 the state of the run. After an
// error the stage has only the layers that were read.
func (r *Reader) read(c *Checkpoint, into *Loaded) (err error) {
	shape := r.Shape
	if shape.Pieces = into.Layout.Pieces; shape.CheckPieces() != nil { // invalid under the new settings: start with the initial assignment, which changes no bit
		shape.Pieces, into.Layout.Pieces = piece.Assignment{}, piece.Assignment{}
	}
	into.Stage = &model.Stage{Config: shape}
	if r.World.Rank() == 0 {
		if into.State, err = c.Run(); err != nil {
			return err
		}
	}
	for _, id := range into.Layout.Owners().Layers(r.Stage) {
		l, err := c.Layer(id, shape, r.Exec.Device, r.Exec.Backend.DType())
		if err != nil {
			return err
		}
		into.Stage.Layers = append(into.Stage.Layers, l)
	}
	return nil
}

// Fill replaces the initial weights of a stage's layers by those of the file model.weights.
func Fill(s *model.Stage, path string) error {
	fail := func(err error) error { return fmt.Errorf("model.weights = %q: %w", path, err) }
	w, err := weights.OpenWeights(path)
	if err != nil {
		return fail(err)
	}
	defer w.Close()
	if w, err = w.Fit(s.Config); err != nil {
		return fail(err)
	}
	for _, l := range s.Layers {
		if err := w.Load(l); err != nil {
			return fail(err)
		}
	}
	debug.FreeOSMemory() // free the memory of reading
	return nil
}
