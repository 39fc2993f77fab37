// Package train is the loop (paper, Algorithm 1): change the model, train a step,
// measure, decide, move layers. It puts the rooms together and is the only place
// where what leaves one step enters the next.
package train

import (
	"cmp"
	"encoding/json"
	"errors"

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
	"dynmo/src/save"
	"dynmo/src/tensor"
)

// Setup is what a rank is given.
type Setup struct {
	Config         config.Config
	World          *comm.Group
	Device         device.Device
	Stream         device.Stream // of the device, for kernels; nil makes one
	Backend        kernel.Backend
	Corpus         *data.Corpus                                      // nil where no layer can need data
	Stop           func() bool                                       // whether this process was asked to end after the step
	Save           func() bool                                       // whether it was asked for a checkpoint since the last call; nil: never
	Resume         string                                            // run directory whose newest checkpoint the run resumes from, the same on all ranks; "" begins anew
	RunDir         string                                            // run directory in which checkpoints are kept, the same on all ranks; "" keeps none; may be set until Loop
	Observe        record.Observer                                   // of rank 0; nil on the others; may be set until Loop
	Joules         func() float64                                    // of this rank since the run began, -1 if they are not known; nil: none
	Fault          *fault.Fault                                      // that is wanted of some rank; nil: none
	Exit           func(int)                                         // ends this process, where a fault wants it
	Terms          *elastic.Terms                                    // of ranks that hold no layer any more; nil where ranks are goroutines, which end
	TransportBytes func(stages, replicas int) int64                  // bytes of the GPU that the transport between ranks takes of each; nil: none
	Phase          func(world *comm.Group, step int, room comm.Room) // called by this rank at the start of every phase of a step; nil: never
	Before         int64                                             // anonymous memory of this process before anything was made, in bytes; 0 if unknown, or if ranks share it
}

// Rank is one rank's part of a run.
type Rank struct {
	Setup
	Balancer policy.Balancer // the one of the settings, unless another takes its place before Loop

	world      elastic.World // where the next step runs, as are layout and stage
	layout     layout.Layout
	stage      *model.Stage
	x          *model.Exec
	runner     *pipeline.Runner
	batches    *data.Batches // nil where no layer can need any
	held       *data.Batches // of the validation data; nil also where there are none
	dynamism   dynamic.Kind
	profiler   profile.Profiler
	neighbours *policy.Neighbours
	planner    *search.Planner
	journal    *record.Journal // nil but on rank 0
	pace       pace
	spent      float64         // seconds that followed the last step
	resized    float64         // seconds that making the groups of other ranks took, the last time
	skipped    int             // steps in a row whose update was left out
	from       save.Checkpoint // that the run resumes from; zero if it begins anew
	saver      *save.Writer    // nil: no checkpoint is written
	products   json.RawMessage // how dense products are made, where that was chosen
	tuned      Tuned           // of rank 0
	slowdown   *kernel.Slowdown
	late       profile.Stragglers
	rest       *migrate.Rest     // of the last move; nil: none
	releases   *elastic.Releases // nil but on rank 0, where ranks are processes
	asked      elastic.Asked     // of ranks without layers
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
		return nil, comm.Input(err)
	}
	if err := cmp.Or(r.layout.Mesh.Check(s.World.Size()), r.layout.Check(c.Layers())); err != nil {
		return nil, comm.Input(err)
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
		return nil, comm.Input(err)
	}
	shape := model.FromConfig(c)
	shape = shape.AsReplica(r.world.Replicas.Rank(), shape.Spread)
	if err := comm.Agree(s.World, r.x.Reserve(shape), false); err != nil {
		return nil, err
	}
	if err := r.fill(shape); err != nil {
		return nil, err
	}
	if err := r.tune(shape); err != nil {
		return nil, err
	}
	if err := comm.Agree(s.World, r.slowDown(), true); err != nil {
		return nil, err
	}
	return r, comm.Agree(s.World, r.place(r.layout), false)
}

// fill makes this rank's first stage: that of a checkpoint, or a new one. Collective.
func (r *Rank) fill(shape model.Config) error {
	if r.Resume != "" {
		if found, err := r.resume(shape); found || err != nil {
			return err
		}
	}
	var err error
	r.stage, err = model.NewStage(shape, r.layout.Owners().Layers(r.world.Stages.Rank()), r.Device, r.Backend.DType())
	if err = comm.Agree(r.World, err, false); err != nil || r.Config.Model.Weights == "" {
		return err
	}
	return comm.Agree(r.World, save.Fill(r.stage, r.Config.Model.Weights), true)
}

// place makes what runs this rank's stage of a layout.
func (r *Rank) place(l layout.Layout) error {
	if r.runner != nil {
		r.runner.Close()
	}
	groups := pipeline.Groups{Stages: r.world.Stages, Replicas: r.world.Replicas}
	r.profiler.Stages, r.profiler.Replicas, r.neighbours.Stages = groups.Stages, groups.Replicas, groups.Stages
	runner, err := pipeline.New(r.x, l, r.stage, groups, pipeline.Options{
		Graphs: r.Config.Device.Graphs && r.Device.Space() == tensor.Device, Validation: r.validationMicrobatches(), Sums: r.planner.Sums(),
	})
	if err == nil {
		r.runner = runner
	}
	return err
}

// now returns the time of the device's clock, in seconds.
func (r *Rank) now() float64 { return r.Device.Clock().Now() }

// Close ends the runner and frees the stage.
func (r *Rank) Close() {
	r.runner.Close()
	r.stage.Free()
	r.x.Close()
	r.x.Backend.Close()
}

// Leave closes the groups that are left, and the device. Collective over the world of the last
// step.
func (r *Rank) Leave() error {
	var err error
	if !r.world.Outside() {
		err = r.world.Close()
	}
	r.Stream.Close()
	return errors.Join(err, r.Device.Close())
}
