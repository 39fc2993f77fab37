// Package train is the loop (paper, Algorithm 1): train a step, change the
// model, measure, balance, migrate. It puts the rooms together and is the only
// place where what leaves one step enters the next.
package train

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/data"
	"dynmo/src/device"
	"dynmo/src/dynamic"
	"dynmo/src/kernel"
	layouts "dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/record"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Setup is what a rank is given.
type Setup struct {
	Config  config.Config
	World   *comm.Group
	Device  device.Device
	Stream  device.Stream // of the device, for kernels; nil makes one
	Backend kernel.Backend
	Corpus  *data.Corpus // nil where no layer can need data
	Stop    func() bool  // whether this process was asked to end after the step
	Observe Observer     // told on rank 0 only
	Energy  *Energy      // of this rank's GPU; nil where it is not metered
	Before  int64        // anonymous memory of this process before anything was made, in bytes; 0 if unknown, or if ranks share it

	// Repartition, if not nil, replaces the balancer: it returns the partition
	// over virtual stages for the next step, the same on every rank.
	Repartition func(step int, now partition.Partition) partition.Partition
}

// Observer is told what happens, as it happens.
type Observer interface {
	Step(record.Metrics) error
	Event(record.Event) error
	// Costs tells what a stretch of steps cost, once it has ended; Trace what the
	// stages of the first replica did in a step.
	Costs(cost.Phase) error
	Trace(trace.Step) error
}

// Rank is one rank's part of a run.
type Rank struct {
	Setup
	stages, replicas *comm.Group
	x                *model.Exec
	stage            *model.Stage
	runner           *pipeline.Runner
	batches          *data.Batches // nil where no layer can need any
	dynamism         dynamic.Kind
	now              partition.Partition // cuts over virtual stages: where layers are
	balancer         balancer
	last             [2]time.Duration // wall time of the two last steps

	costs  costLog // on rank 0
	traced int     // timelines that were told
	held   int     // steps since the layout changed
}

// New places the model on the ranks. Collective.
func New(s Setup) (*Rank, error) {
	p := s.Config.Parallel
	r, grid := &Rank{Setup: s}, grid(s.Config)
	if err := grid.Check(s.World.Size()); err != nil {
		return nil, input(err)
	}
	me := s.World.Rank()
	stage, replica := grid.Stage(me), grid.Replica(me)
	var err error
	if r.stages, err = s.World.Split(replica, stage); err != nil {
		return nil, fmt.Errorf("stages of replica %d: %w", replica, err)
	}
	if r.replicas, err = s.World.Split(stage, replica); err != nil {
		return nil, fmt.Errorf("replicas of stage %d: %w", stage, err)
	}
	if s.Stream == nil {
		s.Stream = s.Device.NewStream()
	}
	r.x = &model.Exec{
		Device: s.Device, Backend: s.Backend, Stream: s.Stream,
		B: p.MicrobatchSize, T: s.Config.Model.Sequence,
	}
	r.x.Scale = 1 / float64(r.x.N()*p.Microbatches*p.Replicas)
	c := modelConfig(s.Config)
	if err := r.x.Reserve(c); err != nil {
		return nil, err
	}
	if s.Corpus != nil {
		r.batches = s.Corpus.Batches(r.x.B, r.x.T)
	}
	r.dynamism = dynamic.New(s.Config)
	if r.balancer, err = newBalancer(s.Config, outline(s.Config, r.x), fixedBytes(s.Config, r.x)); err != nil {
		return nil, input(err)
	}
	r.now = r.balancer.first
	r.costs.model = Shape(s.Config)
	if r.stage, err = model.NewStage(c, r.owners(r.now).Layers(stage), s.Device, s.Backend.DType()); err != nil {
		return nil, err
	}
	if path := s.Config.Model.Weights; path != "" {
		err := load(path, c, r.stage)
		if err != nil {
			err = fmt.Errorf("model.weights = %q: %w", path, err)
		}
		if err := share(s.World, err); err != nil {
			return nil, err
		}
	}
	return r, r.plan()
}

// load replaces the initial weights of a stage by those of a file.
func load(path string, c model.Config, s *model.Stage) error {
	w, err := checkpoint.OpenWeights(path)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Fits(c); err != nil {
		return err
	}
	for _, l := range s.Layers {
		if err := w.Load(l); err != nil {
			return err
		}
	}
	debug.FreeOSMemory() // what was read in passing
	return nil
}

// owners returns the stage of every layer at some cuts.
func (r *Rank) owners(cuts partition.Partition) partition.Owners {
	return r.balancer.schedule.Map.Owners(cuts)
}

// plan makes the runner for the layers this rank holds now.
func (r *Rank) plan() error {
	r.release()
	var err error
	now := layouts.New(r.now, r.balancer.schedule, r.Config.Parallel.Replicas, grid(r.Config).Order)
	r.runner, err = pipeline.New(r.x, now, r.stage, pipeline.Groups{Stages: r.stages, Replicas: r.replicas},
		pipeline.Options{Graphs: r.Config.Device.Graphs && r.Device.Space() == tensor.Device})
	return err
}

// release gives the runner's buffers back, if there is a runner.
func (r *Rank) release() {
	if r.runner != nil {
		r.runner.Close()
	}
}

// leave closes the groups that New made, and the world's, then the device.
// Collective.
func (r *Rank) leave() error {
	err := errors.Join(r.stages.Close(), r.replicas.Close(), r.World.Close())
	r.Stream.Close()
	return errors.Join(err, r.Device.Close())
}

// Close gives back what the rank holds, the threads of its kernels too.
func (r *Rank) Close() {
	r.release()
	r.stage.Free()
	r.x.Close()
	if threads, ok := r.x.Backend.(io.Closer); ok {
		threads.Close()
	}
}

// modelConfig returns the model's shape from the settings.
func modelConfig(c config.Config) model.Config {
	return model.Config{
		Blocks: c.Model.Blocks, Hidden: c.Model.Hidden, Heads: c.Model.Heads,
		Sequence: c.Model.Sequence, Vocab: c.Model.Vocab, Tied: c.Model.Tied, HeadShards: c.Model.HeadShards,
		HalfGrain: c.Model.Grain == "half", DepthScaled: c.Model.Init == "depth-scaled", Seed: c.Run.Seed,
	}
}
