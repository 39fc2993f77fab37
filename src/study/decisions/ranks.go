package decisions

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/elastic"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/tensor"
)

// kernelCosts returns what a kernel call takes on the virtual clock.
type kernelCosts func(*kernel.Call) float64

// onRanks runs a world with a goroutine for each rank: the pipeline on kernels that
// do no arithmetic, the profiler, the balancer and the migration that train too. It
// returns the cuts after every step.
func (w *world) onRanks(balancer, every string, policy Policy) ([]partition.Partition, error) {
	cuts := make([]partition.Partition, w.Steps)
	err := local.Run(w.Stages, func(t comm.Transport) error {
		r, err := w.newRank(t, balancer, every, policy)
		if err != nil {
			return err
		}
		defer r.close()
		for step := range w.Steps {
			if err := r.step(step); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if t.Rank() == 0 {
				cuts[step] = r.layout.Cuts
			}
		}
		return nil
	})
	return cuts, err
}

// rank is one rank of a run.
type rank struct {
	w        *world
	draws    *draws // of this rank, since they are no use to two at once
	groups   elastic.World
	x        *model.Exec
	stage    *model.Stage
	layout   layout.Layout
	runner   *pipeline.Runner
	profiler profile.Profiler
	balancer policy.Balancer

	passes [][]cost.Stage // of the step: by layer of the stage and microbatch
	done   [3]int         // passes forward, backward for inputs and for weights in the step
}

// newRank places the model. Collective.
func (w *world) newRank(t comm.Transport, balancer, every string, policy Policy) (*rank, error) {
	clock := device.NewVirtual()
	clock.Pause() // known costs only
	p, err := w.planner(balancer, every)
	if err != nil {
		return nil, err
	}
	first := w.phases[0]
	r := &rank{w: w, draws: newDraws(w.Noise, w.Seed, w.Steps, w.Stages, len(first.layers))}
	if r.balancer, err = policy.New(p, w.settings(balancer, every)); err != nil {
		return nil, err
	}
	if r.layout, err = p.FirstLayout(cost.Table{Layers: first.layers}); err != nil {
		return nil, err
	}
	if r.groups, err = elastic.Join(comm.New(t, comm.Options{Clock: clock}), r.layout); err != nil {
		return nil, err
	}
	r.profiler.Stages, r.profiler.Replicas = r.groups.Stages, r.groups.Replicas
	if r.x, err = exec(clock, first.shape, r.cost); err != nil {
		return nil, err
	}
	if r.stage, err = model.NewStage(first.shape, r.layout.Owners().Layers(t.Rank()), r.x.Device, tensor.F32); err != nil {
		return nil, err
	}
	if err := first.prune(r.stage); err != nil {
		return nil, err
	}
	return r, r.place()
}

// place makes what runs the stage.
func (r *rank) place() error {
	var err error
	r.runner, err = pipeline.New(r.x, r.layout, r.stage, pipeline.Groups{Stages: r.groups.Stages, Replicas: r.groups.Replicas}, pipeline.Options{})
	return err
}

// step runs a step and what follows it, as train's loop does.
func (r *rank) step(step int) error {
	change := r.w.change(step)
	if change.Structure {
		r.runner.Close()
		if err := r.w.phase(step).prune(r.stage); err != nil {
			return err
		}
		if err := r.place(); err != nil {
			return err
		}
	}
	r.draw(step)
	done, err := r.runner.Step(func(int) (tokens, targets []int32) { return []int32{0}, []int32{0} })
	if err != nil {
		return err
	}
	m, err := r.profiler.Measure(r.x, r.stage, r.layout, done, profile.Own{Joules: -1}, change)
	if err != nil {
		return err
	}
	next, _, err := r.balancer.Decide(m, r.layout)
	if err != nil || next.Equal(r.layout) {
		return err
	}
	r.runner.Close()
	p, err := migrate.Within(r.layout.Owners(), next.Owners(), r.groups.Stages.Rank(), r.stage.Config)
	if err != nil {
		return err
	}
	if r.stage, _, err = migrate.Run(r.groups.Stages, p, r.x, r.stage); err != nil {
		return err
	}
	r.layout = next
	return r.place()
}

// draw draws what the passes of the step take on this rank.
func (r *rank) draw(step int) {
	w := *r.w
	w.draws = r.draws
	truth, factor := w.truth(step), w.on(step, r.groups.Stages.Rank())
	r.passes, r.done = r.passes[:0], [3]int{}
	for _, l := range r.stage.Layers {
		row := make([]cost.Stage, w.Microbatches)
		w.passes(step, l.ID, truth[l.ID], row)
		for m := range row {
			row[m] = tick(row[m].Scale(factor))
		}
		r.passes = append(r.passes, row)
	}
}

// cost returns what a kernel call takes: all that a pass of a layer takes for one
// call in each, nothing for the others. 1F1B works on microbatches in ascending
// order, forwards through the layers in their order and backwards against it.
func (r *rank) cost(c *kernel.Call) float64 {
	n, last := len(r.passes), len(r.passes)-1
	switch next := r.done; {
	case c.Op == kernel.EmbeddingForward, c.Op == kernel.MatmulForward && r.counts(c.O):
		r.done[0]++
		return r.passes[next[0]%n][next[0]/n].Forward
	case c.Op == kernel.MatmulBackwardInput && r.counts(c.O):
		if r.stage.Layers[0].Kind == model.Embedding {
			n-- // which has no backward for inputs
		}
		r.done[1]++
		return r.passes[last-next[1]%n][next[1]/n].Input
	case c.Op == kernel.EmbeddingBackward, c.Op == kernel.MatmulBackwardWeight && r.counts(c.O):
		r.done[2]++
		return r.passes[last-next[2]%n][next[2]/n].Weight
	}
	return 0
}

// counts reports whether a product with so many outputs stands for its layer: the
// first of an attention, of an MLP that is a layer of its own, of a head.
func (r *rank) counts(outputs int) bool {
	shape := &r.w.phases[0].shape
	return outputs == 3*shape.Hidden || shape.HalfGrain && outputs == 4*shape.Hidden || outputs == shape.Vocab
}

// close frees what the rank holds.
func (r *rank) close() {
	r.runner.Close()
	r.stage.Free()
	r.x.Close()
}
