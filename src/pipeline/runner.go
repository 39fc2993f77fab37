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

	cuts      partition.Partition
	list      []schedule.Instr // with messages
	forwards  flow             // activations from the stage before
	backwards flow             // gradients from the stage behind
	slots     []*slot          // free activation memory
	holds     []hold           // free memory between I and W
	outgoing  []*outgoing      // gradients on their way to the stage before, oldest first
	active    []*slot          // by microbatch
	sends     []comm.Request   // not yet complete; in tied also receives
	reduce    reducer
	norms     tensor.Mem // one F64 for each layer
	tied      tensor.Mem // on stage 0: another stage's gradient of tied weights
	times     []timing
	spans     []trace.Span
	now       device.Event // see ready
	losses    []float64
	owned     []tensor.Mem // everything planned, to be freed
}

// slot is the activation memory of one microbatch in flight.
type slot struct {
	saved []tensor.Mem // by layer of the stage
	inp   tensor.Mem   // what entered the stage
	dout  tensor.Mem   // gradient from the stage behind
	held  hold
	send  comm.Request // of the activations
}

// hold is the memory of one microbatch between its backward for inputs and
// for weights.
type hold struct {
	layers []tensor.Mem // by layer
	douts  []tensor.Mem // gradient of each layer's output, but the last layer's
}

// outgoing is a gradient buffer on its way to the stage before.
type outgoing struct {
	mem  tensor.Mem
	send comm.Request
}

// stage and stages are this rank's place in the pipeline.
func (r *Runner) stage() int  { return r.Group.Rank() }
func (r *Runner) stages() int { return r.Group.Size() }

// Plan makes the buffers for a stage's layers and a schedule. cuts says which
// layers all stages hold. It is called whenever any of them changed.
func (r *Runner) Plan(cuts partition.Partition, s *model.Stage, sched schedule.Schedule) error {
	r.Release()
	r.cuts = cuts
	r.list = sched.WithMessages(r.stage())
	peak := sched.Peaks()[r.stage()]
	inFlight, between := peak.InFlight, peak.Between
	behind := func(i int) int64 { return r.Exec.Boundary(s.Config, s.First+i+1) } // layer i of the stage
	entering, leaving := behind(-1), behind(len(s.Layers)-1)
	first, last := r.stage() == 0, r.stage() == r.stages()-1

	r.forwards = flow{peer: r.stage() - 1, tag: comm.TagForward, order: order(r.list, schedule.RecvForward)}
	r.backwards = flow{peer: r.stage() + 1, tag: comm.TagBackward, order: order(r.list, schedule.RecvBackward)}
	plan := planner{r: r}
	for range inFlight {
		sl := &slot{}
		for _, l := range s.Layers {
			saved, _ := l.Sizes(r.Exec)
			sl.saved = append(sl.saved, plan.take(saved))
		}
		r.slots = append(r.slots, sl)
	}
	for range between {
		h := hold{}
		for i, l := range s.Layers {
			_, held := l.Sizes(r.Exec)
			h.layers = append(h.layers, plan.take(held))
			if i < len(s.Layers)-1 {
				h.douts = append(h.douts, plan.take(behind(i)))
			}
		}
		r.holds = append(r.holds, h)
	}
	// One buffer more than can be in use lets the next message arrive early.
	if !first {
		for range inFlight + 1 {
			r.forwards.free = append(r.forwards.free, plan.take(entering))
		}
		for range 2 {
			r.outgoing = append(r.outgoing, &outgoing{mem: plan.take(entering)})
		}
	}
	if !last {
		for range between + 1 {
			r.backwards.free = append(r.backwards.free, plan.take(leaving))
		}
	}
	r.active = make([]*slot, sched.Microbatches)
	r.reduce.plan(&plan, s, r.Replicas.Size())
	r.norms = plan.take(8 * int64(len(s.Layers)))
	if first && !last && s.Config.Tied {
		r.tied = plan.take(tiedBytes(r.Exec, s.Config))
	}
	if plan.err != nil {
		r.Release()
		return fmt.Errorf("pipeline: buffers of stage %d: %w", r.stage(), plan.err)
	}
	return nil
}

// Release gives all buffers back.
func (r *Runner) Release() {
	for _, m := range r.owned {
		r.Exec.Device.Free(m)
	}
	r.owned, r.slots, r.holds, r.outgoing = nil, nil, nil, nil
}

// planner allocates until the first error.
type planner struct {
	r   *Runner
	err error
}

func (p *planner) take(bytes int64) tensor.Mem {
	if p.err != nil {
		return tensor.Mem{}
	}
	m, err := p.r.Exec.Device.Alloc(bytes)
	if err != nil {
		p.err = err
		return tensor.Mem{}
	}
	if !m.IsZero() {
		p.r.owned = append(p.r.owned, m)
	}
	return m
}

// order returns the microbatches of one op, as the list has them.
func order(list []schedule.Instr, op schedule.Op) []int {
	var ms []int
	for _, in := range list {
		if in.Op == op {
			ms = append(ms, in.Microbatch)
		}
	}
	return ms
}
