// Package device is the boundary to the hardware that a rank computes on: memory,
// copies, streams, and the clock that times them.
package device

import "dynmo/src/tensor"

// Device owns memory and streams. One goroutine, the rank's owner, uses it.
type Device interface {
	// Name returns the kind of device, "cpu" or "cuda".
	Name() string
	// Space returns where Alloc's memory lives.
	Space() tensor.Space
	// Alloc returns zeroed memory, aligned to at least 64 bytes. bytes may be 0,
	// which gives an absent Mem.
	Alloc(bytes int64) (tensor.Mem, error)
	// Free returns memory that Alloc gave to the system. Absent memory is ignored.
	Free(m tensor.Mem)
	// AllocHost returns zeroed host memory that copies may use while the host does
	// other work; FreeHost returns it. On a CPU that is any memory.
	AllocHost(bytes int64) (tensor.Mem, error)
	FreeHost(m tensor.Mem)
	// Used returns the bytes allocated by Alloc and not freed; Kept those that were
	// freed and that the device keeps for a later Alloc. Trim gives these back.
	Used() int64
	Kept() int64
	Trim()
	// Recycle(true) lets a device without a cache of its own keep the memory that is
	// freed afterwards; see cpu.Device. Recycle(false) ends that.
	Recycle(on bool)
	// Attach lets the calling goroutine, beside the owner, call libraries on the device, such
	// as NCCL. It ties the goroutine to its thread.
	Attach() error
	// NewStream returns a new queue of work.
	NewStream() Stream
	// Clock returns the clock that this device's events read.
	Clock() *Clock
	// Close gives back all that the device holds. All memory has been freed.
	Close() error
}

// Stream is an ordered queue of kernels and copies. On a CPU the work is done
// when the call that enqueued it returns.
type Stream interface {
	// Record returns an event that happens when everything enqueued so far is
	// done: reuse, an event of this stream that is not used any more, or a new one if
	// reuse is nil.
	Record(reuse Event) Event
	// After makes later work wait for an event of another stream.
	After(e Event)
	// Copy enqueues dst = src; both have the same length. Host memory that is not
	// AllocHost's may be changed at once if it is src; if it is dst, it may be read
	// after Sync, and must not lie on Go's heap unless Sync follows in the same call.
	Copy(dst, src tensor.Mem)
	// Zero enqueues dst = 0.
	Zero(dst tensor.Mem)
	// Capture records the work that enqueue enqueues on this stream, and does not do it.
	// A launch of the graph does the work at the cost of one call. The work is kernels,
	// and copies on the device or with AllocHost's memory. enqueue must neither wait nor
	// allocate, and is called again at each launch where work cannot be captured
	// (see Calls). What fails is the error of the next Sync.
	Capture(enqueue func()) Graph
	// Sync waits for everything enqueued and returns the first error of it.
	Sync() error
	// Close gives the stream back. Nothing is enqueued any more.
	Close()
}

// Graph is work that a stream has captured: the same calls on the same memory,
// whatever that holds when they are done.
type Graph interface {
	// Launch enqueues the work on its stream.
	Launch()
	// Close gives the graph back. All its work must be done.
	Close()
}

// Calls is the Graph of a stream that captures nothing: a launch makes the calls.
type Calls func()

// Launch makes the calls.
func (c Calls) Launch() { c() }

// Close does nothing.
func (c Calls) Close() {}

// Event is a point in a stream.
type Event interface {
	// Wait blocks the host until the event has happened.
	Wait() error
	// Done reports whether it has.
	Done() (bool, error)
	// Seconds returns when the event happened on the device's clock. It may be
	// asked only after Wait, or after Sync of the stream.
	Seconds() float64
}

// Urgent returns a new stream of a device whose kernels start before those of others that
// wait, where the device has such streams.
func Urgent(d Device) Stream {
	if u, ok := d.(interface{ NewUrgentStream() Stream }); ok {
		return u.NewUrgentStream()
	}
	return d.NewStream()
}
