package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"dynmo/src/model"
	"dynmo/src/store"
)

// Resumed is what a run went on from; zero where it began anew.
type Resumed struct {
	Step    int      // steps that are done
	From    string   // the checkpoint's directory
	Damaged []string // why newer checkpoints were not taken
	Changed []string // a line for each setting that is another than the checkpoint's

	loss, sparsity float64
}

// Resumed returns what the run goes on from.
func (r *Rank) Resumed() Resumed { return r.resumed }

// candidates is what rank 0 tells the others of a run's checkpoints.
type candidates struct {
	Whole   []*store.Checkpoint
	Damaged []string
}

// resume makes this rank's first stage from the newest checkpoint of the run directory
// that every rank can read its layers from. It reports whether there is one: none at
// all is no error, for the same command begins a run and goes on with it. Collective.
func (r *Rank) resume(shape model.Config) (found bool, err error) {
	all, err := r.candidates()
	if err != nil {
		return false, err
	}
	r.resumed.Damaged = all.Damaged
	for _, c := range all.Whole {
		changed, err := r.suits(c)
		if err != nil {
			return false, Input(err)
		}
		was := r.layout
		if r.keepsLayout(c) {
			r.layout = c.Layout
		}
		if err = Agree(r.World, r.read(c, shape), false); err == nil {
			r.resumed = Resumed{Step: c.Step, From: c.Dir, Damaged: r.resumed.Damaged, Changed: changed, loss: math.NaN(), sparsity: c.Sparsity}
			if c.Loss != nil {
				r.resumed.loss = *c.Loss
			}
			r.skipped = c.Skipped
			debug.FreeOSMemory() // what was read in passing
			return true, nil
		}
		if _, ok := errors.AsType[SharedError](err); !ok {
			return false, err
		}
		if r.stage != nil {
			r.stage.Free()
			r.stage = nil
		}
		r.layout = was
		r.resumed.Damaged = append(r.resumed.Damaged, err.Error())
	}
	if len(r.resumed.Damaged) > 0 {
		return false, Input(fmt.Errorf("--resume: no whole checkpoint in %s: %s", r.Resume, r.resumed.Damaged[0]))
	}
	return false, nil
}

// candidates returns what rank 0 finds in the run directory. Collective.
func (r *Rank) candidates() (all candidates, err error) {
	var text []byte
	var failed error
	if r.World.Rank() == 0 {
		var damaged []error
		all.Whole, damaged, failed = store.All(r.Resume)
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
	if err := Agree(r.World, failed, true); err != nil {
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

// suits returns an error unless a checkpoint is of this model and its settings may become
// this run's, and a line for each of them that is another.
func (r *Rank) suits(c *store.Checkpoint) (changed []string, err error) {
	if changed, err = r.Config.Resume("checkpoint "+c.Dir, c.Settings); err != nil {
		return nil, err
	}
	if c.Layers != r.Config.Layers() {
		return nil, fmt.Errorf("checkpoint %s: %d layers, the settings describe %d", c.Dir, c.Layers, r.Config.Layers())
	}
	if want := r.Backend.DType().String(); c.DType != want {
		return nil, fmt.Errorf("checkpoint %s: weights of %s, this run's kernels take %s", c.Dir, c.DType, want)
	}
	return changed, nil
}

// keepsLayout reports whether a run goes on in the checkpoint's layout: where what
// layouts depend on is as it was. Another balancer that never moves a layer wants the cuts
// that it begins with.
func (r *Rank) keepsLayout(c *store.Checkpoint) bool {
	settings, err := c.Config()
	was, now := settings.Balance, r.Config.Balance
	return err == nil && c.Layout.Mesh == r.layout.Mesh && settings.Parallel == r.Config.Parallel && settings.Schedule == r.Config.Schedule &&
		(was == now || now.Moves() && was.MemoryLimitBytes == now.MemoryLimitBytes)
}

// read reads the layers of this rank's first stage.
func (r *Rank) read(c *store.Checkpoint, shape model.Config) error {
	r.stage = &model.Stage{Config: shape}
	for _, id := range r.layout.Owners().Layers(r.world.Stages.Rank()) {
		l, err := c.Layer(id, shape, r.Device, r.Backend.DType())
		if err != nil {
			return err
		}
		r.stage.Layers = append(r.stage.Layers, l)
	}
	return nil
}
