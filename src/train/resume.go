package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"dynmo/src/config"
	"dynmo/src/model"
	"dynmo/src/store"
)

// Resumed is what a run went on from; zero where it began anew.
type Resumed struct {
	Step    int      // steps that are done
	From    string   // the checkpoint's directory
	Damaged []string // why newer checkpoints were not taken
	Changed []string // a line for each setting that is another than the checkpoint's
	Anew    string   // why measurements and the balancer begin anew; "" if they do not
	// Otherwise is why dense products are made by other algorithms than before, so that losses
	// agree but for rounding; "" if they are not.
	Otherwise string

	loss, sparsity float64
	kernels        string // backend of the checkpoint's run
	products       []byte // how that made dense products, nil if it had not chosen
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
		was, changed, err := r.suits(c)
		if err != nil {
			return false, Input(err)
		}
		first := r.layout
		if r.keepsLayout(c, was) {
			r.layout = c.Layout
		}
		known, err := r.read(c, shape)
		if err = Agree(r.World, err, false); err == nil {
			r.resumed = Resumed{Step: c.Step, From: c.Dir, Damaged: r.resumed.Damaged, Changed: changed, loss: math.NaN(), sparsity: c.Sparsity}
			if c.Loss != nil {
				r.resumed.loss = *c.Loss
			}
			r.skipped = c.Skipped
			debug.FreeOSMemory() // what was read in passing
			if known, err = r.World.Bcast(0, known); err != nil {
				return false, fmt.Errorf("resume: %w", err)
			}
			if s, err := readState(known); err == nil {
				r.resumed.kernels, r.resumed.products = s.Kernels, s.Products
			}
			r.resumed.Anew, err = r.recall(was, known)
			return true, err
		}
		if _, ok := errors.AsType[SharedError](err); !ok {
			return false, err
		}
		if r.stage != nil {
			r.stage.Free()
			r.stage = nil
		}
		r.layout = first
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
// this run's; else its settings, and a line for each of them that is another.
func (r *Rank) suits(c *store.Checkpoint) (was config.Config, changed []string, err error) {
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
	if want := r.Backend.DType().String(); c.DType != want {
		return was, nil, fmt.Errorf("checkpoint %s: weights of %s, this run's kernels take %s", c.Dir, c.DType, want)
	}
	return was, changed, nil
}

// keepsLayout reports whether a run goes on in the layout of a checkpoint of some
// settings: where what layouts depend on is as it was. Another balancer that never moves a
// layer wants the cuts that it begins with.
func (r *Rank) keepsLayout(c *store.Checkpoint, was config.Config) bool {
	now := r.Config
	return c.Layout.Mesh == r.layout.Mesh && c.Layout.Schedule.Microbatches == now.Parallel.Microbatches && was.Parallel == now.Parallel && was.Schedule == now.Schedule &&
		(was.Balance == now.Balance || now.Balance.Moves() && was.Balance.MemoryLimitBytes == now.Balance.MemoryLimitBytes)
}

// read reads the layers of this rank's first stage, and on rank 0 what the run knew
// besides.
func (r *Rank) read(c *store.Checkpoint, shape model.Config) (known []byte, err error) {
	if r.World.Rank() == 0 {
		if known, err = c.Run(); err != nil {
			return nil, err
		}
	}
	r.stage = &model.Stage{Config: shape}
	for _, id := range r.layout.Owners().Layers(r.world.Stages.Rank()) {
		l, err := c.Layer(id, shape, r.Device, r.Backend.DType())
		if err != nil {
			return nil, err
		}
		r.stage.Layers = append(r.stage.Layers, l)
	}
	return known, nil
}
