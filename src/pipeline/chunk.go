package pipeline

import (
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// chunk is one of this rank's segments of the chain: a virtual stage. The
// virtual stages before and behind it are on other ranks, or chunks of this one.
type chunk struct {
	layers      []*model.Layer
	entering    model.Width    // of the boundary before the chunk
	feeds       bool           // a layer reads data
	upstream    bool           // something before the chunk is trained by gradients, which go there
	trained     bool           // something in the chunk or before it is trained: it has backwards, for which gradients arrive
	before      *chunk         // the one before, if it is on this rank; else nil
	next, prior port           // where activations and gradients go, on another rank
	forwards    flow           // activations from the one before
	backwards   flow           // gradients from the one behind
	free        []*buffer      // activation buffers
	stashes     []stash        // free memory between I and W
	recomputed  [][]tensor.Mem // free memory, by layer, of what layers compute again; a forward uses the last
	outgoing    []*outgoing    // gradients on their way to another rank, oldest first
	active      []*buffer      // by microbatch
	readings    []reading
	rows        []reading // of layers that say how many tokens they worked on (see model.Reading)
}

// buffer is the activation buffer of one microbatch in flight.
type buffer struct {
	entering *model.Batch   // the chunk
	received *model.Subset  // entering, where tokens may have left before the chunk; else nil
	batches  []*model.Batch // that entered each layer of the chunk
	work     []model.Work   // by layer; nil of layers that keep none
	kept     []tensor.Mem   // by layer
	inp      tensor.Mem     // what entered the chunk
	dout     tensor.Mem     // gradient from behind the chunk
	din      tensor.Mem     // where the gradient of inp goes; absent where it is not wanted
	stash    stash
	sends    [2]comm.Request // of the activations, and of the index of their tokens
}

// leaving returns the batch that left the chunk.
func (b *buffer) leaving() *model.Batch { return b.batches[len(b.batches)-1].Leaves() }

// stash is the memory of one microbatch between its backward for inputs and
// for weights.
type stash struct {
	layers []tensor.Mem // by layer
	douts  []tensor.Mem // gradient of each layer's output, but the last layer's
	again  []tensor.Mem // by layer: the recomputed activations
}

// outgoing is the send buffer of a gradient for another rank.
type outgoing struct {
	mem   tensor.Mem
	bytes int64 // of the gradient that is there
	send  comm.Request
}

// chunk makes the buffers of virtual stage v, which has these layers. Chunks of
// a rank are made in order.
func (p *planner) chunk(v int, layers []*model.Layer, n buffers) *chunk {
	r := p.r
	m, index, last := r.schedule.Map, r.schedule.Map.Chunk(v), len(layers)-1
	c := &chunk{
		layers: layers, feeds: slices.ContainsFunc(layers, func(l *model.Layer) bool { return l.Traits.Feeds }),
		upstream: layers[0].ID > r.byGradients, trained: layers[last].ID >= r.trained,
		active: make([]*buffer, r.schedule.Microbatches),
	}
	leaving, varies := layers[last].Leaves(), r.s.Config.Selects(layers[0].ID)
	if v > 0 {
		c.entering = r.s.Config.Chain()[layers[0].ID-1].Leaves()
		if m.Stage(v-1) == m.Stage(v) {
			c.before = r.chunks[index-1]
		}
		c.prior = portOf(r.schedule, comm.TagBackward, v-1, v-1)
		c.forwards = flow{r: r, port: portOf(r.schedule, comm.TagForward, v, v-1), width: c.entering, upTo: varies && r.inOnePiece(c.entering), order: order(r.list, index, schedule.RecvForward)}
	}
	if v < m.Virtual()-1 {
		c.next = portOf(r.schedule, comm.TagForward, v+1, v+1)
		c.backwards = flow{r: r, port: portOf(r.schedule, comm.TagBackward, v, v+1), width: leaving, upTo: r.s.Config.Selects(layers[last].ID+1) && r.inOnePiece(leaving)}
		c.backwards.order = order(r.list, index, schedule.RecvBackward)
	}
	if !c.trained {
		n.stashes, n.gradients, n.recomputed = 0, 0, 1
	}
	if !c.upstream {
		n.outgoing = 0
	}
	if layers[last].ID < r.byGradients {
		n.gradients = 0
	}
	room := func(w model.Width) tensor.Mem { return p.OnDevice(w.Bytes(r.x, r.x.N())) }
	for range n.activations {
		b := &buffer{batches: make([]*model.Batch, len(layers))}
		if varies {
			b.received = model.NewSubset(r.x, p)
		}
		for _, l := range layers {
			b.kept, b.work = append(b.kept, p.OnDevice(l.Sizes(r.x).Kept)), append(b.work, l.NewWork(r.x, p))
		}
		c.free = append(c.free, b)
	}
	for range n.recomputed {
		var again []tensor.Mem
		for _, l := range layers {
			again = append(again, p.OnDevice(l.Sizes(r.x).Again))
		}
		c.recomputed = append(c.recomputed, again)
	}
	for range n.stashes {
		s := stash{}
		for i, l := range layers {
			s.layers = append(s.layers, p.OnDevice(l.Sizes(r.x).Held))
			if i < last {
				s.douts = append(s.douts, room(l.Leaves()))
			}
		}
		c.stashes = append(c.stashes, s)
	}
	for range n.entering {
		c.forwards.free = append(c.forwards.free, room(c.entering))
	}
	for range n.outgoing {
		c.outgoing = append(c.outgoing, &outgoing{mem: room(c.entering)})
	}
	for range n.gradients {
		c.backwards.free = append(c.backwards.free, room(leaving))
	}
	return c
}

// open takes a free activation buffer for a microbatch.
func (c *chunk) open(r *Runner, m int) (*buffer, error) {
	if b := c.active[m]; b != nil {
		return b, nil
	}
	b := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.active[m] = b
	b.entering = &r.x.Full
	return b, waitAll(b.sends[:])
}

// arrive takes what leaves the chunk before, if that is on this rank.
func (c *chunk) arrive(r *Runner, b *buffer, m int) error {
	if c.before == nil {
		return nil
	}
	b.inp = c.forwards.take()
	if b.received != nil {
		if err := b.received.Copy(c.before.active[m].leaving()); err != nil {
			return err
		}
		b.entering = &b.received.Batch
	}
	r.x.Stream.Copy(c.input(r.x, b, 0), c.before.output(r.x, m))
	return nil
}

// data returns the data of a microbatch, if a layer of the chunk reads any.
func (c *chunk) data(feed Feed, m int) (tokens, targets []int32) {
	if !c.feeds {
		return nil, nil
	}
	return feed(m)
}

// forward returns the forward pass of layer i, whose data is put in place.
func (c *chunk) forward(x *model.Exec, b *buffer, i int, tokens, targets []int32) pass {
	b.enter(i)
	l, saved := c.layers[i], c.inForward(b, i)
	if c.feeds {
		l.Feed(x, b.batches[i], saved, tokens, targets)
	}
	return pass{op: trace.F, layer: l, batch: b.batches[i], saved: saved, inp: c.input(x, b, i)}
}

// inForward returns the saved memory of layer i during a forward and until the next
// instruction.
func (c *chunk) inForward(b *buffer, i int) model.Saved {
	return model.Saved{Kept: b.kept[i], Again: c.recomputed[len(c.recomputed)-1][i]}
}

// enter notes the batch that enters a layer, which the layer before has left.
func (b *buffer) enter(layer int) {
	in := b.entering
	if layer > 0 {
		in = b.batches[layer-1].Leaves()
	}
	if w := b.work[layer]; w != nil {
		in = w.Enter(in)
	}
	b.batches[layer] = in
}

// close gives a microbatch's memory back after its backward for weights, which
// is done once after has happened.
func (c *chunk) close(m int, after device.Event) error {
	b := c.active[m]
	c.active[m] = nil
	c.stashes, c.recomputed = append(c.stashes, b.stash), append(c.recomputed, b.stash.again)
	c.free = append(c.free, b)
	inp, dout := b.inp, b.dout
	b.inp, b.dout, b.din, b.stash = tensor.Mem{}, tensor.Mem{}, tensor.Mem{}, stash{}
	if err := c.forwards.release(inp, after); err != nil {
		return err
	}
	return c.backwards.release(dout, after)
}

// drop gives back the input of the chunk for a microbatch whose work here is done, a forward. Where
// nothing leaves the chunk it gives back the buffer too.
func (c *chunk) drop(r *Runner, m int) error {
	b := c.active[m]
	inp := b.inp
	b.inp = tensor.Mem{}
	if c.layers[len(c.layers)-1].ID == len(r.owners)-1 {
		c.leave(m)
	}
	return c.forwards.release(inp, r.ready())
}

// leave makes the buffer of a microbatch free for another one, once what leaves the
// chunk is on its way: behind the others, since the next to use it waits for that.
func (c *chunk) leave(m int) {
	c.free = slices.Insert(c.free, 0, c.active[m])
	c.active[m] = nil
}

// output returns what leaves the chunk for a microbatch.
func (c *chunk) output(x *model.Exec, m int) tensor.Mem {
	last, b := len(c.layers)-1, c.active[m]
	return c.layers[last].Output(x, b.batches[last], model.Saved{Kept: b.kept[last]})
}

// input returns what enters layer i of the chunk.
func (c *chunk) input(x *model.Exec, b *buffer, i int) tensor.Mem {
	if i == 0 {
		return present(x, b.entering, c.entering, b.inp)
	}
	return c.layers[i-1].Output(x, b.batches[i-1], model.Saved{Kept: b.kept[i-1]})
}

// dout returns the gradient of what leaves layer i of the chunk.
func (c *chunk) dout(x *model.Exec, b *buffer, i int) tensor.Mem {
	leaving := b.batches[i].Leaves()
	if i == len(c.layers)-1 {
		return present(x, leaving, c.layers[i].Leaves(), b.dout)
	}
	return present(x, leaving, c.layers[i].Leaves(), b.stash.douts[i])
}

// din returns where the gradient of what enters layer i of the chunk goes; absent
// where nothing before the layer is trained by it.
func (c *chunk) din(r *Runner, b *buffer, i int) tensor.Mem {
	switch {
	case c.layers[i].ID <= r.byGradients:
		return tensor.Mem{}
	case i == 0:
		return present(r.x, b.entering, c.entering, b.din)
	}
	return present(r.x, b.batches[i], c.layers[i-1].Leaves(), b.stash.douts[i-1])
}

// present returns the part of a boundary's memory that has the tokens of a batch; absent of a
// gradient that is not wanted.
func present(x *model.Exec, b *model.Batch, w model.Width, m tensor.Mem) tensor.Mem {
	if m.IsZero() {
		return m
	}
	return m.Span(0, w.Bytes(x, b.Tokens))
}

// stashFor takes the memory of a microbatch's backward for inputs. That is memory until its
// backward for weights and, if wanted, a buffer for the gradient of the chunk's input. The buffer
// will be sent, or it belongs to the chunk before on this rank. stashFor waits until the buffer has
// been sent.
func (c *chunk) stashFor(r *Runner, m int) error {
	b, last := c.active[m], len(c.stashes)-1
	b.stash, c.stashes = c.stashes[last], c.stashes[:last]
	last = len(c.recomputed) - 1
	b.stash.again, c.recomputed = c.recomputed[last], c.recomputed[:last]
	switch {
	case !c.upstream:
		return nil
	case c.before != nil:
		b.din = c.before.backwards.take()
		c.before.active[m].dout = b.din
		return nil
	}
	out := c.outgoing[0]
	b.din, out.bytes = out.mem, c.entering.Bytes(r.x, b.entering.Tokens)
	return out.send.Wait()
}

// restart posts the first receives of a step.
func (c *chunk) restart() error {
	if err := c.forwards.restart(); err != nil {
		return err
	}
	return c.backwards.restart()
}

// progress drives the messages that are to arrive.
func (c *chunk) progress() error {
	if err := c.forwards.progress(); err != nil {
		return err
	}
	return c.backwards.progress()
}
