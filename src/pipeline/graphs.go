package pipeline

import (
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// pass is one pass of a layer over some memory: everything its calls depend on as
// long as the runner lasts. What a pass does not use is absent.
type pass struct {
	op                   trace.Op // F, I or W
	second               bool     // the F is the one before the backward for inputs, of what recomputes
	layer                *model.Layer
	batch                *model.Batch
	saved                model.Saved
	held, inp, dout, din tensor.Mem
}

func (p *pass) enqueue(x *model.Exec) error {
	switch {
	case p.second:
		return p.layer.Repeat(x, p.batch, p.saved, p.inp)
	case p.op == trace.F:
		return p.layer.Forward(x, p.batch, p.saved, p.inp)
	case p.op == trace.I:
		return p.layer.BackwardInput(x, p.batch, p.saved, p.held, p.inp, p.dout, p.din)
	}
	return p.layer.BackwardWeight(x, p.batch, p.saved, p.held, p.inp, p.dout)
}

// shape is a pass, and the batch that its pass points to: the batch's numbers of tokens and
// sequences, and the place of its offsets, not their contents.
type shape struct {
	pass
	batch model.Batch
}

// graphs has the graph of each shape that has been enqueued twice, and nil for a shape that has
// been enqueued once. In that first pass the backend allocates the memory that it keeps for such
// calls; a graph cannot allocate.
type graphs map[shape]device.Graph

// shapesOfAPass is the number of shapes that are remembered for each pass of a step. For a
// microbatch a layer has three passes, or four if it recomputes. Numbers of tokens that depend on
// data rarely repeat, and a graph takes memory of the device.
const shapesOfAPass = 4

func (g graphs) close() {
	for _, graph := range g {
		if graph != nil {
			graph.Close()
		}
	}
}

// repeats reports whether a pass may be a graph. A pass that exchanges messages, selects
// tokens or makes the host wait cannot be a graph. A batch with departed tokens copies
// lists from the host. An empty batch has no calls.
func (p *pass) repeats() bool {
	t, b := p.layer.Traits, p.batch
	if t.Talks || t.Selects || t.Waits || b.Tokens == 0 || b.Queries < b.Tokens {
		return false
	}
	return b.Work == nil || b.Work.Repeats()
}

// enqueue enqueues a pass, as one graph if it repeats.
func (r *Runner) enqueue(p *pass) error {
	if !r.options.Graphs || !p.repeats() {
		return p.enqueue(r.x)
	}
	key := shape{*p, *p.batch}
	key.pass.batch = nil
	graph, again := r.graphs[key]
	switch {
	case !again:
		if len(r.graphs) < r.mostGraphs {
			r.graphs[key] = nil
		}
		return p.enqueue(r.x)
	case graph == nil:
		var err error
		if graph, err = r.capture(*p); err != nil {
			return err
		}
		r.graphs[key] = graph
	}
	graph.Launch()
	return nil
}

func (r *Runner) capture(p pass) (graph device.Graph, err error) {
	graph = r.x.Stream.Capture(func() { err = p.enqueue(r.x) })
	if err != nil {
		graph.Close()
	}
	return graph, err
}
