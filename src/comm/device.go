package comm

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// DeviceTransport moves device memory between the ranks of one group, as Transport
// moves host memory. Messages match by rank and tag, in order, apart from those of
// host memory. Only the rank's owner goroutine calls it. While that waits for the
// device, no message goes on, so two ranks that wait for what the other has yet to
// send wait forever: Await drives messages meanwhile.
type DeviceTransport interface {
	// Send begins to send m to a rank, once after has happened (nil: at once). The
	// event is used before Send returns and may be recorded again then. When the
	// handle is done, work that is enqueued afterwards may overwrite m.
	Send(to, tag int, m tensor.Mem, after device.Event) (Handle, error)
	// Recv begins to receive exactly m.Bytes into m, or at most as many with upTo.
	// Nothing uses m any more once after has happened. When the handle is done, work
	// that is enqueued afterwards finds the message there; the host need not have
	// waited for it. A message of a wrong length is an error of the handle, after
	// which the transport has failed.
	Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Handle, error)
	// Drive takes all messages as far as they go without waiting, as testing any
	// handle does, and returns an error once the transport has failed.
	Drive() error
	// Close frees the transport's resources. All messages are done. Collective.
	Close() error
	// Abort gives up all messages that are not done: their handles, and all later
	// calls, return an error. It does not wait for other ranks.
	Abort()
}
