package pipeline

import (
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// chunk is one of this rank's stretches of the chain: a virtual stage. The
// virtual stages before and behind it are on other ranks, or chunks of this one.
type chunk struct {
	layers      []*model.Layer
	first, last bool      // of the chain
	feeds       bool      // whether a layer needs data
	before      *chunk    // the one before, if it is on this rank; else nil
	next, prior port      // where activations and gradients go, on another rank
	forwards    flow      // activations from the one before
	backwards   flow      // gradients from the one behind
	slots       []*slot   // free activation memory
	holds       []hold    // free memory between I and W
	outgoing    []*parcel // gradients on their way to another rank, oldest first
	active      []*slot   // by microbatch
}

// slot is the activation memory of one microbatch in flight.
type slot struct {
	saved []tensor.Mem // by layer of the chunk
	inp   tensor.Mem   // what entered the chunk
	dout  tensor.Mem   // gradient from behind the chunk
	din   tensor.Mem   // where the gradient of inp goes; absent in the first chunk of the chain
	held  hold
	send  comm.Request // of the activations
}

// hold is the memory of one microbatch between its backward for inputs and
// for weights.
type hold struct {
	layers []tensor.Mem // by layer
	douts  []tensor.Mem // gradient of each layer's output, but the last layer's
}

// parcel is a gradient on its way to another rank.
type parcel struct {
	mem  tensor.Mem
	send comm.Request
}

// chunk makes the buffers of virtual stage v, which has these layers. Chunks of
// a rank are made in order.
func (p *planner) chunk(v int, layers []*model.Layer, have room) *chunk {
	m, x, index := p.schedule.Map, p.r.Exec, p.schedule.Map.Chunk(v)
	behind := func(i int) int64 { return x.Boundary(p.config, layers[0].ID+i+1) } // layer i of the chunk
	entering, leaving := behind(-1), behind(len(layers)-1)
	c := &chunk{
		layers: layers, first: v == 0, last: v == m.Virtual()-1,
		feeds:  slices.ContainsFunc(layers, (*model.Layer).Feeds),
		active: make([]*slot, p.schedule.Microbatches),
	}
	if !c.first {
		if m.Stage(v-1) == m.Stage(v) {
			c.before = p.r.chunks[index-1]
		}
		c.prior = portOf(p.schedule, comm.TagBackward, v-1, v-1)
		c.forwards = flow{port: portOf(p.schedule, comm.TagForward, v, v-1), order: order(p.r.list, index, schedule.RecvForward)}
	}
	if !c.last {
		c.next = portOf(p.schedule, comm.TagForward, v+1, v+1)
		c.backwards = flow{port: portOf(p.schedule, comm.TagBackward, v, v+1), order: order(p.r.list, index, schedule.RecvBackward)}
	}
	for range have.slots {
		sl := &slot{}
		for _, l := range layers {
			saved, _ := l.Sizes(x)
			sl.saved = append(sl.saved, p.take(saved))
		}
		c.slots = append(c.slots, sl)
	}
	for range have.holds {
		h := hold{}
		for i, l := range layers {
			_, held := l.Sizes(x)
			h.layers = append(h.layers, p.take(held))
			if i < len(layers)-1 {
				h.douts = append(h.douts, p.take(behind(i)))
			}
		}
		c.holds = append(c.holds, h)
	}
	for range have.activations {
		c.forwards.free = append(c.forwards.free, p.take(entering))
	}
	for range have.outgoing {
		c.outgoing = append(c.outgoing, &parcel{mem: p.take(entering)})
	}
	for range have.gradients {
		c.backwards.free = append(c.backwards.free, p.take(leaving))
	}
	return c
}

// open takes a free slot for a microbatch.
func (c *chunk) open(m int) (*slot, error) {
	if sl := c.active[m]; sl != nil {
		return sl, nil
	}
	sl := c.slots[len(c.slots)-1]
	c.slots = c.slots[:len(c.slots)-1]
	c.active[m] = sl
	return sl, sl.send.Wait()
}

// close gives a microbatch's memory back after its backward for weights, which
// is done once after has happened.
func (c *chunk) close(g *comm.Group, m int, after device.Event) error {
	sl := c.active[m]
	c.active[m] = nil
	c.holds = append(c.holds, sl.held)
	c.slots = append(c.slots, sl)
	inp, dout := sl.inp, sl.dout
	sl.inp, sl.dout, sl.din, sl.held = tensor.Mem{}, tensor.Mem{}, tensor.Mem{}, hold{}
	if err := c.forwards.release(g, inp, after); err != nil {
		return err
	}
	return c.backwards.release(g, dout, after)
}

// output returns what leaves the chunk for a microbatch.
func (c *chunk) output(x *model.Exec, m int) tensor.Mem {
	last := len(c.layers) - 1
	return c.layers[last].Output(x, c.active[m].saved[last])
}

// input returns what enters layer i of the chunk.
func (c *chunk) input(x *model.Exec, sl *slot, i int) tensor.Mem {
	if i == 0 {
		return sl.inp
	}
	return c.layers[i-1].Output(x, sl.saved[i-1])
}

// dout returns the gradient of what leaves layer i of the chunk.
func (c *chunk) dout(sl *slot, i int) tensor.Mem {
	if i == len(c.layers)-1 {
		return sl.dout
	}
	return sl.held.douts[i]
}

// din returns where the gradient of what enters layer i of the chunk goes.
func (c *chunk) din(sl *slot, i int) tensor.Mem {
	if i == 0 {
		return sl.din
	}
	return sl.held.douts[i-1]
}

// turn takes what the backward for inputs of a microbatch needs: memory until
// its weights, and a buffer for the gradient of what entered the chunk, which
// will be sent, or is the one from behind of the chunk before on this rank. It
// waits until the buffer has been sent.
func (c *chunk) turn(m int) error {
	sl, last := c.active[m], len(c.holds)-1
	sl.held, c.holds = c.holds[last], c.holds[:last]
	switch {
	case c.first:
		return nil
	case c.before != nil:
		sl.din = c.before.backwards.take()
		c.before.active[m].dout = sl.din
		return nil
	}
	sl.din = c.outgoing[0].mem
	return c.outgoing[0].send.Wait()
}

// restart posts the first receives of a step.
func (c *chunk) restart(g *comm.Group) error {
	if err := c.forwards.restart(g); err != nil {
		return err
	}
	return c.backwards.restart(g)
}

// progress drives the messages that come.
func (c *chunk) progress() error {
	if err := c.forwards.progress(); err != nil {
		return err
	}
	return c.backwards.progress()
}
