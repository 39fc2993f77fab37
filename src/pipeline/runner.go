// Package pipeline executes a schedule on this rank. What comes in is a stage
// (the layers this rank owns), a list of instructions and the data of the
// step; what goes out is the gradients of the step, the losses, and a trace of
// what was done when.
package pipeline

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Runner executes steps. Its buffers are planned when the stage's layers or
// the list change, and used again in every step.
type Runner struct {
	Exec     *model.Exec
	Group    *comm.Group // the stages of this replica: rank = stage
	Replicas *comm.Group // the replicas of this stage: rank = replica
	// Feed returns tokens and targets (n each) of a microbatch of this replica.
	Feed func(microbatch int) (tokens, targets []int32)
	// Graphs says that a layer's passes, where they repeat, are enqueued as graphs.
	Graphs bool

	owners partition.Owners
	list   []schedule.Instr // with messages
	chunks []*chunk
	sends  []comm.Request // not yet complete; in tied also receives
	graphs graphs
	reduce reducer
	norms  tensor.Mem // one F64 for each layer
	told   tensor.Mem // norms, on the host
	tied   tensor.Mem // on stage 0: another stage's gradient of tied weights
	times  []timing
	spans  []trace.Span
	instrs []trace.Span // as spans, of whole instructions
	now    device.Event // see ready
	losses tensor.Mem   // F64 by microbatch, on the host, on the stage that ends the chain
	owned  []tensor.Mem // everything planned, to be freed
	pinned []tensor.Mem // the same, on the host
}

// stage is this rank's place in the pipeline.
func (r *Runner) stage() int { return r.Group.Rank() }

// Plan makes the buffers for a stage's layers and a schedule. cuts says which
// layers all virtual stages hold, at least one each. It is called whenever any
// of them changed.
func (r *Runner) Plan(cuts partition.Partition, s *model.Stage, sched schedule.Schedule) error {
	r.Release()
	m := sched.Map
	if err := cuts.Check(s.Config.Layers(), m.Virtual(), true); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	if n := m.Chunks * sched.Microbatches; n > comm.TagMicrobatches && !sched.Ascending() {
		return fmt.Errorf("pipeline: %d microbatches of all chunks of a stage, want at most %d unless there is one chunk and they ascend", n, comm.TagMicrobatches)
	}
	r.owners, r.graphs = m.Owners(cuts), graphs{}
	r.list = sched.WithMessages(r.stage())
	r.losses = tensor.Mem{}
	plan := planner{r: r, config: s.Config, schedule: sched}
	rooms := rooms(sched)
	for i := range m.Chunks {
		v := m.Place(r.stage(), i)
		lo, hi := cuts.Range(v)
		c := plan.chunk(v, s.Stretch(lo, hi), rooms[v])
		r.chunks = append(r.chunks, c)
		if c.last {
			r.losses = plan.host(8 * int64(sched.Microbatches))
		}
	}
	r.reduce.plan(&plan, s, r.Replicas.Size())
	r.norms, r.told = plan.take(8*int64(len(s.Layers))), plan.host(8*int64(len(s.Layers)))
	if r.stage() == 0 && borrowsAfar(s.Config, m) {
		r.tied = plan.take(tiedBytes(r.Exec, s.Config))
	}
	if plan.err != nil {
		r.Release()
		return fmt.Errorf("pipeline: buffers of stage %d: %w", r.stage(), plan.err)
	}
	return nil
}

// Release gives all buffers back, and the graphs of passes over them.
func (r *Runner) Release() {
	r.graphs.close()
	for _, m := range r.owned {
		r.Exec.Device.Free(m)
	}
	for _, m := range r.pinned {
		r.Exec.Device.FreeHost(m)
	}
	r.owned, r.pinned, r.chunks, r.graphs = nil, nil, nil, nil
}

// planner allocates until the first error.
type planner struct {
	r        *Runner
	config   model.Config
	schedule schedule.Schedule
	err      error
}

// take returns memory of the device, host memory of the host.
func (p *planner) take(bytes int64) tensor.Mem {
	return p.from(p.r.Exec.Device.Alloc, &p.r.owned, bytes)
}

func (p *planner) host(bytes int64) tensor.Mem {
	return p.from(p.r.Exec.Device.AllocHost, &p.r.pinned, bytes)
}

func (p *planner) from(alloc func(int64) (tensor.Mem, error), owned *[]tensor.Mem, bytes int64) tensor.Mem {
	if p.err != nil {
		return tensor.Mem{}
	}
	m, err := alloc(bytes)
	if err != nil {
		p.err = err
		return tensor.Mem{}
	}
	if !m.IsZero() {
		*owned = append(*owned, m)
	}
	return m
}

// lossAt returns where the loss of a microbatch is kept.
func (r *Runner) lossAt(microbatch int) tensor.Mem { return r.losses.Span(8*int64(microbatch), 8) }
