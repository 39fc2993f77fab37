package pipeline

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// validation does forward passes alone, in the buffers of steps, which are free
// between two of them and are left as they were. Nothing of it is timed, and its messages
// have tags of their own: random delays of those of steps stay the same.
type validation struct {
	replica int              // microbatches of a replica
	list    []schedule.Instr // with messages
	chunks  []*chunk         // those of steps, with other messages and readings
	losses  tensor.Mem       // on the host: F64 by loss of this stage and microbatch
}

// validation makes the state of Validate for a stage with the given number of losses, besides the
// chunks of steps. Replicas have the same number of microbatches: layers may exchange messages with
// those of the other replicas.
func (p *planner) validation(losses int) validation {
	r, replicas := p.r, p.r.replicas.Size()
	m, v := r.schedule.Map, validation{replica: (r.options.Validation + replicas - 1) / replicas}
	v.list = schedule.Forward(m, v.replica).WithMessages(r.stage())
	v.losses = p.OnHost(8 * int64(losses*v.replica))
	if p.err != nil {
		return v
	}
	rest, bytes := v.losses, 8*int64(v.replica)
	for i, c := range r.chunks {
		virtual := m.Place(r.stage(), i)
		own := &chunk{layers: c.layers, entering: c.entering, feeds: c.feeds, active: make([]*buffer, v.replica)}
		if c.before != nil {
			own.before = v.chunks[i-1]
		}
		if virtual > 0 {
			own.forwards = flow{
				r: r, port: validationPort(m.Stage(virtual-1), i), width: c.entering, upTo: c.forwards.upTo,
				order: order(v.list, i, schedule.RecvForward),
			}
		}
		if virtual < m.Virtual()-1 {
			own.next = validationPort(m.Stage(virtual+1), m.Chunk(virtual+1))
			own.backwards.upTo = c.backwards.upTo
		}
		for _, at := range c.readings {
			if at.counts == nil {
				at.host, rest = rest.Span(0, bytes), rest.Span(bytes, rest.Bytes-bytes)
				own.readings = append(own.readings, at)
			}
		}
		v.chunks = append(v.chunks, own)
	}
	return v
}

// validationPort returns the port for messages to a chunk of the receiver. One tag will
// do: microbatches are sent and received in ascending order.
func validationPort(peer, chunk int) port {
	base := comm.TagValidation + 2*chunk
	return port{peer, tags{base, 0, 1}, tags{base + 1, 0, 1}}
}

// Validate returns the mean loss per token of Options.Validation microbatches, without training. Each
// of R replicas computes a row of consecutive microbatches, ceil(Options.Validation / R) of them. feed
// gets the number of a microbatch among those of all replicas.
//
// loss counts a token that leaves at an exit with its loss there. If any token leaves, a second pass
// takes all tokens to the last layer, and last is their mean loss there. Else last equals loss. Losses
// are added by microbatch, then by layer, so both means have the same bits on every rank and for
// every placement.
//
// Call Validate between steps. It leaves gradients and the result of the last step as they are.
// Collective over the stages and the replicas.
func (r *Runner) Validate(feed Feed) (loss, last float64, err error) {
	if err = r.FinishUpdate(); err == nil {
		var left bool
		loss, left, err = r.validate(feed)
		if last = loss; err == nil && left {
			r.x.Stays = true
			last, _, err = r.validate(feed)
			r.x.Stays = false
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("pipeline: validation: stage %d: %w", r.stage(), err)
	}
	return loss, last, nil
}

// validate does one pass. left says whether tokens have a loss at exits.
func (r *Runner) validate(feed Feed) (loss float64, left bool, err error) {
	if err := r.forwards(feed); err != nil {
		return 0, false, err
	}
	return r.validationLoss()
}

func (r *Runner) forwards(feed Feed) error {
	v := &r.validation
	r.x.Validates = true
	defer func() { r.x.Validates = false }()
	kernel.Hold(r.x.Backend, true)
	defer kernel.Hold(r.x.Backend, false)
	for i, c := range v.chunks {
		lent := r.chunks[i]
		c.free, c.recomputed, c.forwards.free = append(c.free[:0], lent.free...), lent.recomputed, append(c.forwards.free[:0], lent.forwards.free...)
		if err := c.forwards.restart(); err != nil {
			return err
		}
	}
	first, last := r.replicas.Rank()*v.replica, r.options.Validation-1
	mine := func(m int) (tokens, targets []int32) {
		return feed(min(first+m, last)) // what is there twice does not count
	}
	for _, in := range v.list {
		if err := v.execute(r, in, mine); err != nil {
			return fmt.Errorf("%v: %w", in, err)
		}
	}
	if err := r.drain(); err != nil {
		return err
	}
	return r.sync()
}

// execute carries out one instruction.
func (v *validation) execute(r *Runner, in schedule.Instr, feed Feed) error {
	c, m := v.chunks[in.Chunk], in.Microbatch
	r.group.Post().Do(in.Op, -1, m)
	switch in.Op {
	case schedule.RecvForward:
		return r.receiveActivations(c, m)
	case schedule.SendForward:
		err := r.sendActivations(c, m)
		c.leave(m)
		return err
	}
	return v.forward(r, c, m, feed)
}

func (v *validation) forward(r *Runner, c *chunk, m int, feed Feed) error {
	b, err := c.open(r, m)
	if err != nil {
		return err
	}
	if err := c.arrive(r, b, m); err != nil {
		return err
	}
	r.x.Microbatch = r.replicas.Rank()*v.replica + m
	tokens, targets := c.data(feed, m)
	for i, l := range c.layers {
		r.group.Post().Do(schedule.F, l.ID, m)
		p := c.forward(r.x, b, i, tokens, targets)
		if err := p.enqueue(r.x); err != nil {
			return fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
		}
		if err := r.progress(v.chunks); err != nil {
			return err
		}
	}
	r.read(c, m)
	if c.before != nil {
		c.before.leave(m)
	}
	return c.drop(r, m)
}

// validationLoss adds up what all ranks have.
func (r *Runner) validationLoss() (loss float64, left bool, err error) {
	v := &r.validation
	stages, err := r.group.Allgather(comm.Pack(tensor.Of[float64](v.losses)))
	if err != nil {
		return 0, false, fmt.Errorf("over stages: %w", err)
	}
	values := make([][]float64, len(stages))
	for stage, b := range stages {
		values[stage] = comm.Unpack[float64](b)
	}
	replicas, err := r.replicas.Allgather(comm.Pack(r.inOrder(nil, values, v.replica)))
	if err != nil {
		return 0, false, fmt.Errorf("over replicas: %w", err)
	}
	var all []float64
	for _, b := range replicas {
		all = append(all, comm.Unpack[float64](b)...)
	}
	sum, microbatches, chain := 0.0, r.options.Validation, r.s.Config.Chain()
	for i, loss := range all[:microbatches*len(r.lossLayers)] {
		sum += loss
		left = left || loss != 0 && chain[r.lossLayers[i%len(r.lossLayers)]].Kind == model.Exit
	}
	return sum / float64(microbatches*r.x.N()), left, nil
}
