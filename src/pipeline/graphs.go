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
	op                          trace.Op // F, I or W
	layer                       *model.Layer
	batch                       *model.Batch
	saved, held, inp, dout, din tensor.Mem
}

func (p *pass) enqueue(x *model.Exec) error {
	switch p.op {
	case trace.F:
		return p.layer.Forward(x, p.batch, p.saved, p.inp)
	case trace.I:
		return p.layer.BackwardInput(x, p.batch, p.saved, p.held, p.inp, p.dout, p.din)
	}
	return p.layer.BackwardWeight(x, p.batch, p.saved, p.held, p.inp, p.dout)
}

// shape is a pass, and the batch that its pass points to: its numbers of tokens
// and sequences, and where its offsets are, not what they hold.
type shape struct {
	pass
	batch model.Batch
}

// graphs has the graph of each shape that has been enqueued twice, nil for those
// that have been enqueued once: that first time, the backend allocates what it
// keeps for such calls, which a graph cannot.
type graphs map[shape]device.Graph

// shapesOfAPass is how many shapes are remembered for each of a step's passes, of
// which a layer has three for a microbatch: numbers of tokens that depend on data
// rarely repeat, and a graph takes memory of the device.
const shapesOfAPass = 4

func (g graphs) close() {
	for _, graph := range g {
		if graph != nil {
			graph.Close()
		}
	}
}

// repeats reports whether a pass may be a graph. One that exchanges messages, finds out
// which tokens go on, or waits for how many a block takes or where they go among experts
// cannot be, nor one that copies from the host where departed tokens are. How many tokens a
// routed block takes is part of no shape, so that only passes of full microbatches repeat;
// of no tokens there is nothing to repeat.
func (p *pass) repeats() bool {
	l, b := p.layer, p.batch
	varies := l.Routes() && !b.Index.IsZero()
	return !l.Talks() && !l.Selects() && !l.Waits() && !varies && b.Tokens > 0 && b.Departed == 0
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
