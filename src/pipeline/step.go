package pipeline

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Result is what a step leaves besides the gradients in the layers.
type Result struct {
	Losses []float64    // sum of the tokens' losses, by microbatch of this replica; empty on all stages but the last; valid until the next step
	Spans  []trace.Span // of this rank; valid until the next step
}

// timing is a span whose events have not been read yet.
type timing struct {
	kind              trace.Kind
	layer, microbatch int
	start, end        device.Event
}

// Step executes the planned list on the stage's layers: gradients of all
// microbatches of this replica, then their sum over replicas, then, if the
// embedding is tied, the sum of its ends. Collective over the stages and
// the replicas. Gradients add up in ascending order of microbatches, replicas
// in ascending order, so the result does not depend on placement.
func (r *Runner) Step(s *model.Stage) (Result, error) {
	for _, l := range s.Layers {
		l.ZeroGradients(r.Exec)
	}
	r.losses = r.losses[:0]
	if r.stage() > 0 {
		if err := r.forwards.restart(r.Group); err != nil {
			return Result{}, err
		}
	}
	if r.stage() < r.stages()-1 {
		if err := r.backwards.restart(r.Group); err != nil {
			return Result{}, err
		}
	}
	r.times = r.times[:0]
	for _, in := range r.list {
		if err := r.execute(s, in); err != nil {
			return Result{}, fmt.Errorf("pipeline: stage %d: %v: %w", r.stage(), in, err)
		}
	}
	if err := r.drain(); err != nil {
		return Result{}, fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
	}
	reduce := r.begin(trace.Reduce, -1, -1)
	for _, l := range s.Layers {
		l.MaskGradients(r.Exec)
	}
	if err := r.reduce.run(r, s); err != nil {
		return Result{}, fmt.Errorf("pipeline: reduce: stage %d: %w", r.stage(), err)
	}
	if err := r.sumTied(s); err != nil {
		return Result{}, fmt.Errorf("pipeline: tied embedding: stage %d: %w", r.stage(), err)
	}
	r.end(reduce)
	if err := r.Exec.Stream.Sync(); err != nil {
		return Result{}, fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
	}
	r.spans = r.spans[:0]
	for _, t := range r.times {
		r.spans = append(r.spans, trace.Span{Kind: t.kind, Layer: t.layer, Microbatch: t.microbatch,
			Start: t.start.Seconds(), End: t.end.Seconds()})
	}
	return Result{Losses: r.losses, Spans: r.spans}, nil
}

// execute carries out one instruction.
func (r *Runner) execute(s *model.Stage, in schedule.Instr) error {
	m := in.Microbatch
	switch in.Op {
	case schedule.RecvForward:
		sl, err := r.open(m)
		if err != nil {
			return err
		}
		sl.inp, err = r.forwards.wait(m)
		return err
	case schedule.RecvBackward:
		var err error
		r.active[m].dout, err = r.backwards.wait(m)
		return err
	case schedule.SendForward:
		sl := r.active[m]
		last := len(s.Layers) - 1
		var err error
		sl.send, err = r.send(r.stage()+1, comm.TagForward, m, s.Layers[last].Output(r.Exec, sl.saved[last]))
		return err
	case schedule.SendBackward:
		out := r.outgoing[0]
		copy(r.outgoing, r.outgoing[1:])
		r.outgoing[len(r.outgoing)-1] = out
		var err error
		out.send, err = r.send(r.stage()-1, comm.TagBackward, m, out.mem)
		return err
	case schedule.F:
		return r.forward(s, m)
	case schedule.B:
		for i := len(s.Layers) - 1; i >= 0; i-- {
			if err := r.backwardInput(s, m, i); err != nil {
				return err
			}
			if err := r.backwardWeight(s, m, i); err != nil {
				return err
			}
		}
		return r.close(m)
	case schedule.I:
		for i := len(s.Layers) - 1; i >= 0; i-- {
			if err := r.backwardInput(s, m, i); err != nil {
				return err
			}
		}
		return nil
	case schedule.W:
		for i := len(s.Layers) - 1; i >= 0; i-- {
			if err := r.backwardWeight(s, m, i); err != nil {
				return err
			}
		}
		return r.close(m)
	}
	panic("pipeline: unknown instruction")
}

// open takes a free slot for a microbatch.
func (r *Runner) open(m int) (*slot, error) {
	if sl := r.active[m]; sl != nil {
		return sl, nil
	}
	sl := r.slots[len(r.slots)-1]
	r.slots = r.slots[:len(r.slots)-1]
	r.active[m] = sl
	if err := sl.send.Wait(); err != nil {
		return nil, err
	}
	return sl, nil
}

// close gives a microbatch's memory back after its backward for weights.
func (r *Runner) close(m int) error {
	sl := r.active[m]
	r.active[m] = nil
	r.holds = append(r.holds, sl.held)
	r.slots = append(r.slots, sl)
	sl.held = hold{}
	if !sl.inp.IsZero() {
		if err := r.forwards.release(r.Group, sl.inp); err != nil {
			return err
		}
	}
	if !sl.dout.IsZero() {
		if err := r.backwards.release(r.Group, sl.dout); err != nil {
			return err
		}
	}
	sl.inp, sl.dout = tensor.Mem{}, tensor.Mem{}
	return nil
}

// input returns what enters layer i of the stage.
func (r *Runner) input(s *model.Stage, sl *slot, i int) tensor.Mem {
	if i == 0 {
		return sl.inp
	}
	return s.Layers[i-1].Output(r.Exec, sl.saved[i-1])
}

// begin remembers when something begins, and returns a number for end. Events
// of earlier steps are used again.
func (r *Runner) begin(kind trace.Kind, layer, microbatch int) int {
	n := len(r.times)
	if n < cap(r.times) {
		r.times = r.times[:n+1]
	} else {
		r.times = append(r.times, timing{})
	}
	t := &r.times[n]
	t.kind, t.layer, t.microbatch = kind, layer, microbatch
	t.start = r.Exec.Stream.Record(t.start)
	return n
}

// end remembers when it ends.
func (r *Runner) end(n int) {
	r.times[n].end = r.Exec.Stream.Record(r.times[n].end)
}

// ready returns an event for a message that is sent now. Group.Send asks it
// before it returns, so that one will do.
func (r *Runner) ready() device.Event {
	r.now = r.Exec.Stream.Record(r.now)
	return r.now
}

func (r *Runner) forward(s *model.Stage, m int) error {
	sl, err := r.open(m)
	if err != nil {
		return err
	}
	var tokens, targets []int32
	if slices.ContainsFunc(s.Layers, (*model.Layer).Feeds) {
		tokens, targets = r.Feed(m)
	}
	for i, l := range s.Layers {
		l.Feed(r.Exec, sl.saved[i], tokens, targets)
		n := r.begin(trace.F, l.ID, m)
		l.Forward(r.Exec, sl.saved[i], r.input(s, sl, i))
		r.end(n)
		if err := r.progress(); err != nil {
			return err
		}
	}
	if r.stage() == r.stages()-1 {
		if err := r.Exec.Stream.Sync(); err != nil {
			return err
		}
		last := len(s.Layers) - 1
		r.losses = append(r.losses, s.Layers[last].Loss(r.Exec, sl.saved[last]))
	}
	return nil
}

func (r *Runner) backwardInput(s *model.Stage, m, i int) error {
	sl := r.active[m]
	if i == len(s.Layers)-1 {
		sl.held = r.holds[len(r.holds)-1]
		r.holds = r.holds[:len(r.holds)-1]
	}
	din := tensor.Mem{}
	switch {
	case i > 0:
		din = sl.held.douts[i-1]
	case r.stage() > 0:
		out := r.outgoing[0]
		if err := out.send.Wait(); err != nil {
			return err
		}
		din = out.mem
	}
	n := r.begin(trace.I, s.Layers[i].ID, m)
	s.Layers[i].BackwardInput(r.Exec, sl.saved[i], sl.held.layers[i], r.input(s, sl, i), r.dout(s, sl, i), din)
	r.end(n)
	return r.progress()
}

func (r *Runner) backwardWeight(s *model.Stage, m, i int) error {
	sl := r.active[m]
	n := r.begin(trace.W, s.Layers[i].ID, m)
	s.Layers[i].BackwardWeight(r.Exec, sl.saved[i], sl.held.layers[i], r.input(s, sl, i), r.dout(s, sl, i))
	r.end(n)
	return r.progress()
}

// dout returns the gradient of what leaves layer i of the stage.
func (r *Runner) dout(s *model.Stage, sl *slot, i int) tensor.Mem {
	if i == len(s.Layers)-1 {
		return sl.dout
	}
	return sl.held.douts[i]
}

// send begins to send a boundary tensor of a microbatch.
func (r *Runner) send(to, tag, m int, mem tensor.Mem) (comm.Request, error) {
	req, err := r.Group.Send(to, tag+m%comm.TagMicrobatches, mem, r.ready())
	if err == nil {
		r.sends = append(r.sends, req)
	}
	return req, err
}

// progress drives every message that is on its way.
func (r *Runner) progress() error {
	open := r.sends[:0]
	for _, req := range r.sends {
		done, err := req.Test()
		if err != nil {
			return err
		}
		if !done {
			open = append(open, req)
		}
	}
	r.sends = open
	if err := r.forwards.progress(); err != nil {
		return err
	}
	return r.backwards.progress()
}

// drain waits for the messages of r.sends that are left.
func (r *Runner) drain() error {
	if err := waitAll(r.sends); err != nil {
		return err
	}
	r.sends = r.sends[:0]
	return nil
}
