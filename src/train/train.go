// Package train is the loop (paper, Algorithm 1): change the model, train a step,
// measure, decide, move layers. It puts the rooms together and is the only place
// where what leaves one step enters the next.
package train

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/device"
	"dynmo/src/dynamic"
	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/plan/policy"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/tensor"
)

// Setup is what a rank is given.
type Setup struct {
	Config         config.Config
	World          *comm.Group
	Device         device.Device
	Stream         device.Stream // of the device, for kernels; nil makes one
	Backend        kernel.Backend
	Corpus         *data.Corpus                     // nil where no layer can need data
	Stop           func() bool                      // whether this process was asked to end after the step
	Save           func() bool                      // whether it was asked for a checkpoint since the last call; nil: never
	Resume         string                           // run directory whose newest checkpoint the run goes on from, the same on all ranks; "" begins anew
	RunDir         string                           // run directory in which checkpoints are kept, the same on all ranks; "" keeps none; may be set until Loop
	Observe        record.Observer                  // of rank 0; nil on the others; may be set until Loop
	Joules         func() float64                   // of this rank since the run began, -1 if they are not known; nil: none
	Fault          *fault.Fault                     // that is wanted of some rank; nil: none
	Exit           func(int)                        // ends this process, where a fault wants it
	Terms          *elastic.Terms                   // of ranks that hold no layer any more; nil where ranks are goroutines, which end
	TransportBytes func(stages, replicas int) int64 // bytes of the GPU that the transport between ranks takes of each; nil: none
	Before         int64                            // anonymous memory of this process before anything was made, in bytes; 0 if unknown, or if ranks share it
}

// Rank is one rank's part of a run.
type Rank struct {
	Setup
	Balancer policy.Balancer // the one of the settings, unless another takes its place before Loop

	world    elastic.World // of the first step, and after Loop of the last, as are layout and stage
	layout   layout.Layout
	stage    *model.Stage
	x        *model.Exec
	runner   *pipeline.Runner
	batches  *data.Batches // nil where no layer can need any
	held     *data.Batches // of the validation data; nil also where there are none
	dynamism dynamic.Kind
	profiler profile.Profiler
	planner  *search.Planner
	journal  *record.Journal    // nil but on rank 0
	last     [2]time.Duration   // wall time of the two last steps
	lately   [100]time.Duration // wall time of so many last steps
	spent    float64            // seconds that followed the last step
	resized  float64            // seconds that making the groups of other ranks took, the last time
	skipped  int                // steps in a row whose update was left out
	resumed  Resumed
	saver    saver
	products json.RawMessage // how dense products are made, where that was chosen
	tuned    Tuned           // of rank 0
	slows    *slows          // of a fault that slows this rank down; nil: none
	late     profile.Stragglers
	rest     *migrate.Rest     // of the last move; nil: none
	releases *elastic.Releases // nil but on rank 0, where ranks are processes
	asked    elastic.Asked     // of ranks without layers
}

// first returns the planner of settings and the layout of the first step.
func first(c config.Config) (*search.Planner, layout.Layout, error) {
	planner, err := search.Configured(c)
	if err != nil {
		return nil, layout.Layout{}, err
	}
	l, err := planner.FirstLayout(search.Dense(c))
	return planner, l, err
}

// Bytes returns the memory that every stage needs in the first step. Errors are the
// settings', or those of a schedule's file.
func Bytes(c config.Config) ([]int64, error) {
	planner, l, err := first(c)
	if err != nil {
		return nil, err
	}
	return planner.Bytes(search.Dense(c), l.Cuts, l.Schedule.Peaks()), nil
}

// New places the model on the ranks. An error of one rank is that of all. Collective.
func New(s Setup) (*Rank, error) {
	c := s.Config
	r := &Rank{Setup: s}
	var err error
	if r.planner, r.layout, err = first(c); err != nil {
		return nil, Input(err)
	}
	if err := cmp.Or(r.layout.Mesh.Check(s.World.Size()), r.layout.Check(c.Layers())); err != nil {
		return nil, Input(err)
	}
	if r.world, err = elastic.Join(s.World, r.layout); err != nil {
		return nil, err
	}
	if r.Stream == nil {
		r.Stream = s.Device.NewStream()
	}
	p := c.Parallel
	r.x = &model.Exec{Device: s.Device, Backend: s.Backend, Stream: r.Stream, B: p.MicrobatchSize, T: c.Model.Sequence}
	r.x.Scale = 1 / float64(r.x.N()*p.Microbatches*p.Replicas)
	r.draw(1)
	if err := r.begin(); err != nil {
		return nil, Input(err)
	}
	shape := model.FromConfig(c)
	shape = shape.AsReplica(r.world.Replicas.Rank(), shape.Spread)
	if err := Agree(s.World, r.x.Reserve(shape), false); err != nil {
		return nil, err
	}
	found := false
	if s.Resume != "" {
		if found, err = r.resume(shape); err != nil {
			return nil, err
		}
	}
	if !found {
		if err := Agree(s.World, r.fill(shape), false); err != nil {
			return nil, err
		}
		if err := Agree(s.World, r.load(shape), true); err != nil {
			return nil, err
		}
	}
	if err := r.tune(shape); err != nil {
		return nil, err
	}
	if err := Agree(s.World, r.slowDown(), true); err != nil {
		return nil, err
	}
	return r, Agree(s.World, r.place(r.world, r.layout, r.stage), false)
}

// fill makes the layers of this rank's first stage.
func (r *Rank) fill(shape model.Config) (err error) {
	r.stage, err = model.NewStage(shape, r.layout.Owners().Layers(r.world.Stages.Rank()), r.Device, r.Backend.DType())
	return err
}

// place makes what runs a stage of a layout.
func (r *Rank) place(w elastic.World, l layout.Layout, s *model.Stage) error {
	if r.runner != nil {
		r.runner.Close()
	}
	r.profiler.Stages, r.profiler.Replicas = w.Stages, w.Replicas
	runner, err := pipeline.New(r.x, l, s, pipeline.Groups{Stages: w.Stages, Replicas: w.Replicas}, pipeline.Options{
		Graphs: r.Config.Device.Graphs && r.Device.Space() == tensor.Device, Validation: r.validationMicrobatches(),
	})
	if err == nil {
		r.runner = runner
	}
	return err
}

// load replaces the initial weights of this rank's first stage by those of the
// settings' file, if they name one.
func (r *Rank) load(shape model.Config) error {
	path := r.Config.Model.Weights
	if path == "" {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("model.weights = %q: %w", path, err) }
	w, err := checkpoint.OpenWeights(path)
	if err != nil {
		return fail(err)
	}
	defer w.Close()
	if w, err = w.Fit(shape); err != nil {
		return fail(err)
	}
	for _, l := range r.stage.Layers {
		if err := w.Load(l); err != nil {
			return fail(err)
		}
	}
	debug.FreeOSMemory() // what was read in passing
	return nil
}
