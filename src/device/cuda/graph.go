//go:build cuda && cgo

package cuda

/*
#include <cuda.h>
*/
import "C"

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Graphs counts the graphs of a device.
type Graphs struct {
	Captured int // made
	Refused  int // graphs that CUDA cannot capture: their launches make the calls one by one
	Launched int // number of launches of all graphs
}

// Graphs returns the numbers of captured, refused and launched graphs.
func (d *Device) Graphs() Graphs { return d.graphs }

// graph is captured work of a stream, or the function that enqueues the work.
type graph struct {
	s       *Stream
	exec    C.CUgraphExec // nil if not captured
	enqueue func()
}

// Capture captures the work that enqueue enqueues. If CUDA cannot capture it, each Launch calls
// enqueue.
func (s *Stream) Capture(enqueue func()) device.Graph {
	g := &graph{s: s, enqueue: enqueue}
	if s.err != nil {
		return g
	}
	switch status := g.capture(); {
	case uncapturable(status):
		s.d.graphs.Refused++
		s.err = nil // error of the refused call; other errors return when enqueue is called again
	case status != 0:
		s.check("capture a graph", named(status))
	case s.err != nil:
		g.Close() // it lacks the call that failed
	default:
		s.d.graphs.Captured++
	}
	return g
}

// capture captures the work that enqueue enqueues, in the mode that lets other threads continue to
// use the same GPU.
func (g *graph) capture() C.CUresult {
	stream := C.CUstream(g.s.Handle())
	if status := C.cuStreamBeginCapture(stream, C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); status != 0 {
		return status
	}
	g.s.capturing = true
	g.enqueue()
	g.s.capturing = false
	var captured C.CUgraph
	if status := C.cuStreamEndCapture(stream, &captured); status != 0 {
		return status
	}
	status := C.cuGraphInstantiateWithFlags(&g.exec, captured, 0)
	C.cuGraphDestroy(captured)
	return status
}

// uncapturable reports whether a status means that calls cannot be captured, as opposed to invalid
// calls.
func uncapturable(status C.CUresult) bool {
	return status == C.CUDA_ERROR_NOT_SUPPORTED ||
		status >= C.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && status <= C.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
}

// Launch enqueues the work.
func (g *graph) Launch() {
	if g.exec == nil {
		g.enqueue()
		return
	}
	g.s.d.graphs.Launched++
	if status := C.cuGraphLaunch(g.exec, C.CUstream(g.s.Handle())); status != 0 {
		g.s.check("launch a graph", named(status))
	}
}

// Close releases the graph.
func (g *graph) Close() {
	if g.exec == nil {
		return
	}
	if status := C.cuGraphExecDestroy(g.exec); status != 0 {
		g.s.Fail(fmt.Errorf("cuda: give a graph back: %w", explain(named(status))))
	}
	g.exec = nil
}

// lasts reports whether a graph may copy memory: the memory must stay at its address.
func (d *Device) lasts(m tensor.Mem) bool { return m.Space == tensor.Device || d.pinned.holds(m) }
