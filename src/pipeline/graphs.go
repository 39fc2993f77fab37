package pipeline

import (
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// pass is one pass of a layer over some memory: everything its calls depend on as
// long as a plan lasts. What a pass does not use is absent.
type pass struct {
	kind                        trace.Op // F, I or W
	layer                       *model.Layer
	saved, held, inp, dout, din tensor.Mem
}

func (p *pass) enqueue(x *model.Exec) {
	switch p.kind {
	case trace.F:
		p.layer.Forward(x, p.saved, p.inp)
	case trace.I:
		p.layer.BackwardInput(x, p.saved, p.held, p.inp, p.dout, p.din)
	case trace.W:
		p.layer.BackwardWeight(x, p.saved, p.held, p.inp, p.dout)
	}
}

// graphs has the graph of each pass that has come twice in this plan, nil for
// those that have come once: that first time, the backend allocates what it keeps
// for such calls, which a graph cannot.
type graphs map[pass]device.Graph

func (g graphs) close() {
	for _, graph := range g {
		if graph != nil {
			graph.Close()
		}
	}
}

// enqueue enqueues a pass, as one graph if it has come before.
func (r *Runner) enqueue(p *pass) {
	if !r.Graphs {
		p.enqueue(r.Exec)
		return
	}
	graph, again := r.graphs[*p]
	switch {
	case !again:
		r.graphs[*p] = nil
		p.enqueue(r.Exec)
		return
	case graph == nil:
		graph = r.capture(*p)
		r.graphs[*p] = graph
	}
	graph.Launch()
}

func (r *Runner) capture(p pass) device.Graph {
	return r.Exec.Stream.Capture(func() { p.enqueue(r.Exec) })
}
