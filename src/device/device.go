// Package device is the boundary to the hardware that a rank computes on: memory,
// copies, streams, and the clock that times them.
package device

import "dynmo/src/tensor"

// Device owns memory and streams. One goroutine, the rank's owner, uses it.
type Device interface {
	// Name returns the kind of device, "cpu" or "cuda".
	Name() string
	// Space returns the space of the memory that Alloc returns.
	Space() tensor.Space
	// Alloc returns zeroed memory, aligned to at least 64 bytes. For 0 bytes it returns an absent
	// Mem.
	Alloc(bytes int64) (tensor.Mem, error)
	// Free frees memory from Alloc. Absent memory is ignored.
	Free(m tensor.Mem)
	// AllocHost returns zeroed host memory for copies that run while the host does other work.
	// FreeHost frees it. On a CPU it is ordinary memory.
	AllocHost(bytes int64) (tensor.Mem, error)
	FreeHost(m tensor.Mem)
	// Used returns the bytes that Alloc returned and that are not freed. Kept returns the freed
	// bytes that the device keeps for a later Alloc. Trim frees the kept memory.
	Used() int64
	Kept() int64
	Trim()
	// Recycle(true) allows a device without its own cache to keep memory that is freed later; see
	// cpu.Device. Recycle(false) ends that.
	Recycle(on bool)
	// Attach allows a goroutine other than the owner to call libraries on the device, for example
	// NCCL. It locks the goroutine to its thread.
	Attach() error
	// NewStream returns a new queue of work.
	NewStream() Stream
	// Clock returns the clock that this device's events read.
	Clock() *Clock
	// Close releases everything that the device has. All memory must have been freed.
	Close() error
}

// Stream is an ordered queue of kernels and copies. On a CPU the work is done before the call that
// enqueues it returns.
type Stream interface {
	// Record returns an event that happens when all work enqueued so far is done. reuse is an event
	// of this stream that is no longer used; if it is nil Record makes a new event.
	Record(reuse Event) Event
	// After makes later work on this stream wait for an event of another stream.
	After(e Event)
	// Copy enqueues dst = src; both have the same length. For host memory that is not from
	// AllocHost two rules apply. src may be changed as soon as Copy returns. dst may be read after
	// Sync, and must not be on Go's heap unless Sync follows in the same call.
	Copy(dst, src tensor.Mem)
	// Zero enqueues dst = 0.
	Zero(dst tensor.Mem)
	// Capture records the work that enqueue enqueues on this stream, without executing it. A launch
	// of the graph executes the work for the cost of one call. The work is kernels, and copies on
	// the device or with AllocHost's memory. enqueue must neither wait nor allocate. If the work
	// cannot be captured, each launch calls enqueue again (see Calls). The next Sync returns an
	// error of Capture.
	Capture(enqueue func()) Graph
	// Sync waits for all enqueued work and returns its first error.
	Sync() error
	// Close releases the stream. No work may be enqueued afterwards.
	Close()
}

// Graph is captured work of a stream: the same calls on the same memory, with the contents of the
// memory at each launch.
type Graph interface {
	// Launch enqueues the work on its stream.
	Launch()
	// Close releases the graph. All its work must be done.
	Close()
}

// Calls is the Graph of a stream that cannot capture: a launch calls the function.
type Calls func()

// Launch calls the function.
func (c Calls) Launch() { c() }

// Close does nothing.
func (c Calls) Close() {}

// Event is a point in a stream.
type Event interface {
	// Wait blocks the host until the event has happened.
	Wait() error
	// Done reports whether the event has happened.
	Done() (bool, error)
	// Seconds returns the time of the event on the device's clock. It may be called only after
	// Wait, or after Sync of the stream.
	Seconds() float64
}

// Urgent returns a new stream whose waiting kernels start before those of other streams, if the
// device has such streams.
func Urgent(d Device) Stream {
	if u, ok := d.(interface{ NewUrgentStream() Stream }); ok {
		return u.NewUrgentStream()
	}
	return d.NewStream()
}
