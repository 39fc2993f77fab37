package pipeline

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Result is what a step leaves besides the gradients in the layers. It is valid
// until the next step.
type Result struct {
	Losses       []float64    // sum of the tokens' losses, by microbatch of this replica; empty on all stages but the one that ends the chain
	Spans        []trace.Span // of this rank, by layer
	Instructions []trace.Span // of this rank: one for each instruction of its list, in order; with the data that it reads and copies, without waiting for buffers
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
	for _, c := range r.chunks {
		if err := c.restart(r.Group); err != nil {
			return Result{}, fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
		}
	}
	r.times = r.times[:0]
	for _, in := range r.list {
		if err := r.execute(r.chunks[in.Chunk], in); err != nil {
			return Result{}, fmt.Errorf("pipeline: stage %d: %v: %w", r.stage(), in, err)
		}
	}
	if err := r.drain(); err != nil {
		return Result{}, fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
	}
	reduce := r.begin(trace.Reduce, -1, schedule.Instr{Microbatch: -1})
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
	if err := r.sync(); err != nil {
		return Result{}, fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
	}
	r.trace()
	return Result{Losses: tensor.Of[float64](r.losses), Spans: r.spans, Instructions: r.instrs}, nil
}

// execute carries out one instruction.
func (r *Runner) execute(c *chunk, in schedule.Instr) error {
	m := in.Microbatch
	switch in.Op {
	case schedule.RecvForward:
		sl, err := c.open(m)
		if err != nil {
			return err
		}
		sl.inp, err = c.forwards.wait(m)
		return err
	case schedule.RecvBackward:
		var err error
		c.active[m].dout, err = c.backwards.wait(m)
		return err
	case schedule.SendForward:
		var err error
		c.active[m].send, err = r.send(c.next, m, c.output(r.Exec, m))
		return err
	case schedule.SendBackward:
		out := c.outgoing[0]
		copy(c.outgoing, c.outgoing[1:])
		c.outgoing[len(c.outgoing)-1] = out
		var err error
		out.send, err = r.send(c.prior, m, out.mem)
		return err
	case schedule.F:
		return r.forward(c, in)
	}
	return r.backward(c, in)
}

func (r *Runner) forward(c *chunk, in schedule.Instr) error {
	m := in.Microbatch
	sl, err := c.open(m)
	if err != nil {
		return err
	}
	r.start(in)
	if c.before != nil {
		sl.inp = c.forwards.take()
		r.Exec.Stream.Copy(sl.inp, c.before.output(r.Exec, m))
	}
	var tokens, targets []int32
	if c.feeds {
		tokens, targets = r.Feed(m)
	}
	for i, l := range c.layers {
		l.Feed(r.Exec, sl.saved[i], tokens, targets)
		p := pass{kind: trace.F, layer: l, saved: sl.saved[i], inp: c.input(r.Exec, sl, i)}
		if err := r.pass(&p, in); err != nil {
			return err
		}
	}
	if c.last {
		last := len(c.layers) - 1
		r.Exec.Stream.Copy(r.lossAt(m), c.layers[last].Loss(r.Exec, sl.saved[last]))
	}
	return nil
}

func (r *Runner) backward(c *chunk, in schedule.Instr) error {
	m := in.Microbatch
	if in.Op != schedule.W {
		if err := c.turn(m); err != nil {
			return err
		}
	}
	r.start(in)
	for i := len(c.layers) - 1; i >= 0; i-- {
		if in.Op != schedule.W {
			if err := r.backwardInput(c, in, i); err != nil {
				return err
			}
		}
		if in.Op != schedule.I {
			if err := r.backwardWeight(c, in, i); err != nil {
				return err
			}
		}
	}
	if in.Op == schedule.I {
		return nil
	}
	return c.close(r.Group, m, r.ready())
}

func (r *Runner) backwardInput(c *chunk, in schedule.Instr, i int) error {
	sl := c.active[in.Microbatch]
	return r.pass(&pass{
		kind: trace.I, layer: c.layers[i], saved: sl.saved[i], held: sl.held.layers[i],
		inp: c.input(r.Exec, sl, i), dout: c.dout(sl, i), din: c.din(sl, i),
	}, in)
}

func (r *Runner) backwardWeight(c *chunk, in schedule.Instr, i int) error {
	sl := c.active[in.Microbatch]
	return r.pass(&pass{
		kind: trace.W, layer: c.layers[i], saved: sl.saved[i], held: sl.held.layers[i],
		inp: c.input(r.Exec, sl, i), dout: c.dout(sl, i),
	}, in)
}

// pass does one pass of a layer, timed, and drives the messages meanwhile.
func (r *Runner) pass(p *pass, in schedule.Instr) error {
	n := r.begin(p.kind, p.layer.ID, in)
	r.enqueue(p)
	r.end(n)
	return r.progress()
}

// ready returns an event for a message that begins now: what was enqueued before
// is done. Group looks at it before it returns, so that one will do.
func (r *Runner) ready() device.Event {
	r.now = r.Exec.Stream.Record(r.now)
	return r.now
}

// sync waits for everything enqueued and returns the first error of it.
func (r *Runner) sync() error {
	if err := comm.Await(r.ready(), r.Group, r.Replicas); err != nil {
		return err
	}
	return r.Exec.Stream.Sync()
}

// send begins to send a boundary tensor of a microbatch.
func (r *Runner) send(to port, m int, mem tensor.Mem) (comm.Request, error) {
	req, err := r.Group.Send(to.peer, to.tag(m), mem, r.ready())
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
	for _, c := range r.chunks {
		if err := c.progress(); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for the messages of r.sends that are left.
func (r *Runner) drain() error {
	if err := waitAll(r.sends); err != nil {
		return err
	}
	r.sends = r.sends[:0]
	return nil
}
