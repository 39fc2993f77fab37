// Package train is the training loop (paper, Algorithm 1): change the model, train a step, measure,
// decide, move layers. It connects the other packages. Only this package carries state from one
// step to the next.
package train

import (
	"cmp"
	"encoding/json"
	"errors"

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
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// Setup has the inputs of one rank's part of a run.
type Setup struct {
	Config         config.Config
	First          First // of Config
	World          *comm.Group
	Device         device.Device
	Stream         device.Stream // of the device, for kernels; nil makes one
	Backend        kernel.Backend
	Corpus         *data.Corpus                                      // nil if no layer of this rank can read data
	Stop           func() bool                                       // reports whether this process was asked to stop after the step
	Save           func() bool                                       // reports whether a checkpoint was asked for since the last call; nil: never
	Resume         string                                            // run directory with the checkpoint to resume from, the same on all ranks; "": a new run
	RunDir         string                                            // run directory for checkpoints, the same on all ranks; "": no checkpoints; may be set until Loop
	Observe        record.Observer                                   // of rank 0; nil on the others; may be set until Loop
	Joules         func() float64                                    // energy of this rank since the run began, -1 if unknown; nil: not measured
	Fault          *fault.Fault                                      // fault to inject in some rank; nil: none
	Exit           func(int)                                         // ends this process, if the fault asks for it
	Terms          *elastic.Terms                                    // how ranks without layers are released; nil if ranks are goroutines, which end
	TransportBytes func(stages, replicas int) int64                  // GPU memory that the transport between ranks takes on each rank, in bytes; nil: none
	Phase          func(world *comm.Group, step int, room comm.Room) // called by this rank at the start of every phase of a step; nil: never
	Before         int64                                             // anonymous memory of this process before the run allocated anything, in bytes; 0 if unknown, or if ranks share a process
}

// Rank is one rank's part of a run.
type Rank struct {
	Setup
	Balancer policy.Balancer // made from the settings; may be replaced until Loop

	world      elastic.World // of the next step, as are layout and stage
	layout     layout.Layout
	stage      *model.Stage
	x          *model.Exec
	runner     *pipeline.Runner
	batches    *data.Batches // nil if no layer can read data
	held       *data.Batches // validation data; nil also without validation data
	dynamism   dynamic.Kind
	profiler   profile.Profiler
	neighbours *policy.Neighbours
	problem    *search.Problem
	ran        *search.Problem // for the layout of the last step, on rank 0
	journal    *record.Journal // nil except on rank 0
	pace       pace
	spent      float64            // from the start of measuring to the end of moves, in the last step
	resized    float64            // that making the groups of other ranks took in the last resize
	skipped    int                // consecutive steps without an update
	from       checkpoint.Loaded  // the checkpoint that the run resumes from; zero in a new run
	saver      *checkpoint.Writer // nil: no checkpoint is written
	products   json.RawMessage    // chosen algorithms of dense products; nil: not chosen
	tuned      Tuned              // measurements of rank 0
	slowdown   *kernel.Slowdown
	late       profile.Stragglers
	rest       *migrate.Rest     // part of the last move that still runs; nil: none
	releases   *elastic.Releases // nil except on rank 0 of ranks that are processes
	asked      elastic.Asked     // requests that ranks without layers received
}

// First is the layout of the first step, and the problem that the settings describe.
type First struct {
	problem *search.Problem
	layout  layout.Layout
}

// PlanFirst plans the first step. Errors come from the settings, or from the file of a schedule.
func PlanFirst(c config.Config) (f First, err error) {
	if f.problem, err = search.Configured(c); err == nil {
		f.layout, err = f.problem.Step(search.Dense(c), layout.Layout{}).FirstLayout()
	}
	return f, err
}

// Bytes returns the memory that every stage needs in the first step.
func (f First) Bytes() []int64 {
	return f.problem.Step(search.Dense(f.problem.Config), f.layout).Bytes(f.layout)
}

// New places the model on the ranks. An error of one rank is returned on all ranks. Collective.
func New(s Setup) (*Rank, error) {
	c := s.Config
	r := &Rank{Setup: s}
	r.problem, r.layout = s.First.problem, s.First.layout
	var err error
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

// fill makes this rank's first stage, from a checkpoint or new. Collective.
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
	return comm.Agree(r.World, checkpoint.Fill(r.stage, r.Config.Model.Weights), true)
}

// place makes the runner of this rank's stage in a layout.
func (r *Rank) place(l layout.Layout) error {
	if r.runner != nil {
		r.runner.Close()
	}
	groups := pipeline.Groups{Stages: r.world.Stages, Replicas: r.world.Replicas}
	r.profiler.Stages, r.profiler.Replicas, r.neighbours.Stages = groups.Stages, groups.Replicas, groups.Stages
	runner, err := pipeline.New(r.x, l, r.stage, groups, pipeline.Options{
		Graphs: r.Config.Device.Graphs && r.Device.Space() == tensor.Device, Validation: r.validationMicrobatches(), Sums: schedule.SumsOf(r.Config),
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
