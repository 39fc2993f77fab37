package comm

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Kind is what a group that is split from another one does with device memory.
type Kind int

// Kinds of groups.
const (
	// Apart is a group that does everything with resources of its own.
	Apart Kind = iota
	// Row is a group with rounds (Exchange). Its rounds travel as those of the group that it is
	// split from, in one order with them. That group stays open as long as the Row.
	Row
	// Chain is a Row whose neighbours also send each other messages, apart from the rounds.
	Chain
)

// DeviceTransport moves device memory between the ranks of one group, as Transport
// moves host memory. Messages match by rank and tag, in order, apart from those of
// host memory. Only the rank's owner goroutine calls it. While this goroutine waits for the
// device no message goes on. Then two ranks that each wait for a message of the other wait
// forever. Await drives messages meanwhile.
type DeviceTransport interface {
	// Send begins to send m to a rank, once after has happened (nil: at once). The
	// event is used before Send returns and may be recorded again then. When the
	// handle is done, work that is enqueued afterwards may overwrite m. The rank is this
	// one or a neighbour: one above or below, or the last of the first and the other way
	// round. Others are an error of the programmer.
	Send(to, tag int, m tensor.Mem, after device.Event) (Handle, error)
	// Recv begins to receive exactly m.Bytes into m, or at most as many with upTo.
	// Nothing uses m any more once after has happened. When the handle is done, work
	// that is enqueued afterwards finds the message there; the host need not have
	// waited for it. A message of a wrong length is an error of the handle, after
	// which the transport has failed.
	Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Handle, error)
	// Exchange begins a round of messages with any other ranks, once after has happened;
	// see Group.Exchange. Some part has bytes. The parts are used before it returns.
	Exchange(sends, recvs []Part, after device.Event) (RoundHandle, error)
	// Split returns the transport of a part of the group, whose ranks t has; nil where t is
	// nil: this rank is in no part. Ranks with one color are in one part. A Row and a Chain
	// are closed before the transport that they are split from; only a transport that is
	// Apart is split into parts that are Apart. Collective, and with rounds in one order.
	Split(t Transport, color int, kind Kind) (DeviceTransport, error)
	// Ready reports whether the transport has all it needs, and drives that: after New and
	// Split it may have to wait for other ranks.
	Ready() (bool, error)
	// Drive takes all messages as far as they go without waiting, as testing any
	// handle does, and returns an error once the transport has failed.
	Drive() error
	// Close frees the transport's resources. All messages are done. Collective.
	Close() error
	// Abort gives up all messages that are not done: their handles, and all later
	// calls, return an error. It does not wait for other ranks.
	Abort()
}

// RoundHandle is a round under way. Its Test is true once work that is enqueued
// afterwards finds what was received and may overwrite what was sent.
type RoundHandle interface {
	Handle
	// Arrived reports whether all messages of the round have arrived on the device, and
	// drives them. Test follows in any case.
	Arrived() (bool, error)
}
