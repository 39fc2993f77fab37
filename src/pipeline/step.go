package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Feed returns the tokens and the targets of a microbatch, B·T of each, sequence after sequence. Step
// numbers the microbatches of this replica from 0; Validate numbers those of all replicas together.
// The slices must stay valid until the next call of Feed. A step calls Feed once for each microbatch
// and each chunk that reads data: twice for a rank with the embedding in one chunk and the head in another.
type Feed func(microbatch int) (tokens, targets []int32)

// Result is what a step returns besides the gradients in the layers. It is valid until the next step.
type Result struct {
	// Losses are sums over the tokens of a microbatch. With M microbatches of this replica, the k-th
	// loss of this stage, in chain order, has elements k·M to k·M+M-1. Empty on stages without a loss.
	Losses []float64
	// Counts of this stage's layers, ascending by layer, microbatch and name. The counts of
	// model.Watch are appended.
	Counts []cost.Count
	Spans  []trace.Span // the passes of this rank's layers, and its sums over replicas, in order
	// Instructions has a span for each F, B, I and W of this rank, in order. A span includes copies of
	// the input data and waits for other replicas. It excludes waits for messages and for buffers.
	Instructions []trace.Span
}

// Forwarded sets a function that later steps call once, when the last message of activations of this
// stage has begun. An error of f ends the step. nil: no function. A stage that sends no activations
// never calls f. A move of layers uses it to send what must not delay activations.
func (r *Runner) Forwarded(f func() error) { r.forwarded = f }

// Step executes the schedule on the stage's layers. It computes the gradients of all microbatches of
// this replica. Meanwhile it sums, over the replicas, gradients of layers that are complete. It ends
// with the sums of tied matrices. Gradients are added in ascending order of microbatches, then of
// replicas, so the result does not depend on placement. After an error the Runner can only be closed.
// Collective over the stages and the replicas.
func (r *Runner) Step(feed Feed) (Result, error) {
	if err := r.step(feed); err != nil {
		return Result{}, fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
	}
	r.trace()
	r.share()
	r.count()
	counts := r.counts
	if len(r.watched) > 0 {
		counts = slices.Concat(counts, r.watched)
	}
	return Result{Losses: tensor.Of[float64](r.losses), Counts: counts, Spans: r.spans, Instructions: r.instrs}, nil
}

func (r *Runner) step(feed Feed) error {
	kernel.Hold(r.x.Backend, true)
	defer kernel.Hold(r.x.Backend, false)
	for _, l := range r.s.Layers {
		l.ZeroGradients(r.x)
	}
	for _, c := range r.chunks {
		if err := c.restart(); err != nil {
			return err
		}
	}
	r.times, r.waits, r.watched = r.times[:0], r.waits[:0], r.watched[:0]
	defer r.references.end()
	r.reduce.restart()
	if err := r.lessons.restart(r); err != nil {
		return err
	}
	for i, in := range r.list {
		if err := r.execute(r.chunks[in.Chunk], in, feed); err != nil {
			return fmt.Errorf("%v: %w", in, err)
		}
		if i == r.lastForward && r.forwarded != nil {
			if err := r.forwarded(); err != nil {
				return err
			}
		}
	}
	if err := r.drain(); err != nil {
		return err
	}
	reduce := r.begin(trace.Reduce, -1, schedule.Instr{Microbatch: -1})
	if err := r.reduce.finish(r); err != nil {
		return fmt.Errorf("reduce: %w", err)
	}
	if err := r.sumCopies(); err != nil {
		return fmt.Errorf("copies: %w", err)
	}
	if err := r.sumTied(); err != nil {
		return fmt.Errorf("tied: %w", err)
	}
	r.end(reduce)
	return r.sync()
}

// execute carries out one instruction.
func (r *Runner) execute(c *chunk, in schedule.Instr, feed Feed) error {
	m := in.Microbatch
	r.group.Post().Do(in.Op, -1, m)
	switch in.Op {
	case schedule.RecvForward:
		return r.receiveActivations(c, m)
	case schedule.RecvBackward:
		b := c.active[m]
		mem, bytes, err := c.backwards.wait(m)
		if want := c.backwards.width.Bytes(r.x, b.leaving().Tokens); err == nil && bytes != want {
			err = fmt.Errorf("a gradient of %d bytes, want %d", bytes, want)
		}
		b.dout = mem
		return err
	case schedule.SendForward:
		err := r.sendActivations(c, m)
		if !c.trained {
			c.leave(m)
		}
		return err
	case schedule.SendBackward:
		out := c.outgoing[0]
		copy(c.outgoing, c.outgoing[1:])
		c.outgoing[len(c.outgoing)-1] = out
		var err error
		out.send, err = r.send(c.prior.peer, c.prior.tag.of(m), out.mem.Span(0, out.bytes), r.ready())
		return err
	case schedule.F:
		return r.forward(c, in, feed)
	}
	return r.backward(c, in)
}

func (r *Runner) forward(c *chunk, in schedule.Instr, feed Feed) error {
	m := in.Microbatch
	b, err := c.open(r, m)
	if err != nil {
		return err
	}
	r.start(in)
	if err := c.arrive(r, b, m); err != nil {
		return err
	}
	r.x.Microbatch = r.replicas.Rank()*r.schedule.Microbatches + m
	tokens, targets := c.data(feed, m)
	for i, l := range c.layers {
		if err := r.awaitWeights(l); err != nil {
			return err
		}
		p := c.forward(r.x, b, i, tokens, targets)
		if err := r.pass(&p, in); err != nil {
			return err
		}
	}
	r.read(c, m)
	if err := errors.Join(r.lessons.teach(r, c, m), r.watch(c, m, tokens, targets)); err != nil {
		return err
	}
	return c.forget(r, m)
}

// forget gives back, after the forward of a microbatch, what no backward will need: of
// chunks that have none. What leaves such a chunk for another rank is still to be sent.
func (c *chunk) forget(r *Runner, m int) error {
	if c.before != nil && !c.before.trained {
		c.before.leave(m)
	}
	if c.trained {
		return nil
	}
	return c.drop(r, m)
}

func (r *Runner) backward(c *chunk, in schedule.Instr) error {
	m := in.Microbatch
	if in.Op != schedule.W {
		if err := errors.Join(c.stashFor(r, m), r.lessons.learn(r, c, m)); err != nil {
			return err
		}
	}
	r.start(in)
	b := c.active[m]
	for i := len(c.layers) - 1; i >= 0 && c.layers[i].ID >= r.trained; i-- {
		l := c.layers[i]
		p := pass{
			op: trace.I, layer: l, batch: b.batches[i], saved: model.Saved{Kept: b.kept[i], Again: b.stash.again[i]}, held: b.stash.layers[i],
			inp: c.input(r.x, b, i), dout: c.dout(r.x, b, i), din: c.din(r, b, i),
		}
		if in.Op != schedule.W && l.ID >= r.byGradients {
			if err := r.pass(&p, in); err != nil {
				return err
			}
		}
		if in.Op != schedule.I && l.Trains() {
			p.op, p.din = trace.W, tensor.Mem{}
			if err := r.pass(&p, in); err != nil {
				return err
			}
			if r.schedule.Completes(in) {
				l.MaskGradients(r.x)
				r.reduce.completed(l.Traits.Talks)
				if err := r.reduce.advance(r); err != nil {
					return fmt.Errorf("reduce: %w", err)
				}
			}
		}
	}
	if in.Op == schedule.I {
		return nil
	}
	return c.close(m, r.ready())
}

// pass does one pass of a layer, timed, and drives the messages meanwhile.
func (r *Runner) pass(p *pass, in schedule.Instr) error {
	n := r.begin(p.op, p.layer.ID, in)
	r.passing = true
	var err error
	if p.op == trace.I && p.layer.Recomputes() {
		err = r.enqueue(&pass{op: trace.F, second: true, layer: p.layer, batch: p.batch, saved: p.saved, inp: p.inp})
		r.repeated(n)
	}
	if err == nil {
		err = r.enqueue(p)
	}
	if r.passing = false; err != nil {
		return fmt.Errorf("layer %d (%s): %w", p.layer.ID, p.layer.Name, err)
	}
	r.end(n)
	if p.op == trace.F {
		r.times[n].tokens, r.times[n].expected = p.batch.Worked(), p.batch.Expected()
	}
	if err := r.reduce.advance(r); err != nil {
		return fmt.Errorf("reduce: %w", err)
	}
	if err := r.driveWeights(); err != nil {
		return err
	}
	return r.progress(r.chunks)
}

// ready returns an event for a message that begins now: what was enqueued before
// is done. Group looks at it before it returns, so that one will do.
func (r *Runner) ready() device.Event {
	r.event = r.x.Stream.Record(r.event)
	return r.event
}

// sync waits for everything enqueued and returns the first error of it.
func (r *Runner) sync() error {
	if err := comm.Await(r.ready(), r.group, r.replicas); err != nil {
		return err
	}
	return r.x.Stream.Sync()
}

// send begins to send memory that is ready after an event.
func (r *Runner) send(to, tag int, mem tensor.Mem, after device.Event) (comm.Request, error) {
	req, err := r.group.Send(to, tag, mem, after)
	if err == nil {
		r.sends = append(r.sends, req)
	}
	return req, err
}

// progress drives every message that is on its way, to chunks among others.
func (r *Runner) progress(chunks []*chunk) error {
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
	for _, c := range chunks {
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

// waitAll waits for requests; zero ones had nothing to carry.
func waitAll(reqs []comm.Request) error {
	for _, req := range reqs {
		if err := req.Wait(); err != nil {
			return err
		}
	}
	return nil
}
