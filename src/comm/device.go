package comm

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Kind says what a group that Group.SplitAs forms can do with device memory. The table in the package
// comment lists the calls that work.
type Kind int

// Kinds of groups.
const (
	// Apart is a group with a communicator (a channel of the backend) of its own. It has rounds (Exchange), and no single
	// messages of device memory. It may stay open after the group that it is split from is closed.
	Apart Kind = iota
	// Row is a group with rounds. They use the communicator of the group from which the Row is
	// split, the parent. So callers begin the rounds of the parent and of all its Rows and Chains in
	// one order on all ranks. The Row is closed before the parent.
	Row
	// Chain is a Row in which neighbours can also Send and Recv device memory. These messages use
	// another communicator, so their order relative to the rounds is free.
	Chain
)

// DeviceTransport is one rank's side of a backend for device memory. It moves device memory between
// the ranks of one group, as Transport moves host memory. Messages match by rank and tag, in the
// order in which they begin. They never match messages of host memory. Only the rank's owner
// goroutine calls a DeviceTransport.
//
// Messages advance only while the owner calls the transport. So the owner must not block the host
// until the device is done, except through Await, which drives messages meanwhile. Otherwise two
// ranks that each wait for a message of the other could wait forever.
type DeviceTransport interface {
	// Send begins to send m to a rank, once after has happened (nil: at once). The caller may
	// record the event again as soon as Send returns. When the handle is done, work that is then
	// enqueued may overwrite m.
	//
	// The rank is this rank itself or a neighbour. Neighbours of rank r are r-1 and r+1; the first
	// and the last rank of the group are neighbours too. A send to any other rank is an error of
	// the programmer, and a transport may panic.
	Send(to, tag int, m tensor.Mem, after device.Event) (Handle, error)
	// Recv begins to receive exactly m.Bytes into m, or with upTo at most m.Bytes, once after has
	// happened. Nothing else uses m from then on. When the handle is done, work that is then
	// enqueued finds the message in m, although the device may still be receiving. A message of a
	// wrong length is an error of the handle, and the transport has failed.
	Recv(from, tag int, m tensor.Mem, upTo bool, after device.Event) (Handle, error)
	// Exchange begins a round of messages with any other ranks, once after has happened; see
	// Group.Exchange. Group calls it only if some part has bytes. The caller may change the slices
	// sends and recvs as soon as Exchange returns, but not the memory of the parts.
	Exchange(sends, recvs []Part, after device.Event) (RoundHandle, error)
	// Split returns the transport of a new group, which is split from this transport's group as
	// kind. t is the new group's Transport. It is nil on a rank that is in no new group, and Split
	// returns nil there. Ranks with one color are in one new group. A Row or a Chain is closed
	// before this transport. The caller splits an Apart group only from an Apart group; Split does
	// not check this. All ranks make rounds and splits in one order. Collective.
	Split(t Transport, color int, kind Kind) (DeviceTransport, error)
	// Ready reports whether the transport is complete, and helps to complete it, which may need
	// other ranks. Group.SplitAs calls Ready until it returns true, on the new transport and on the
	// transport that is split. No message begins before.
	Ready() (bool, error)
	// Drive advances all messages without waiting, as Test of any handle does. It returns an error
	// once the transport has failed.
	Drive() error
	// Close frees the transport's resources. The caller has waited for all messages and rounds: one
	// that is under way makes Close fail. Collective.
	Close() error
	// Abort gives up all messages that are not done: their handles, and all later calls, return an
	// error. Abort does not wait for other ranks.
	Abort()
}

// RoundHandle is a round of device memory under way. It has two conditions, which come one after the
// other or together. Test reports that the round is in order on the device: work that is then
// enqueued finds the received memory and may overwrite the sent memory. Arrived reports that the
// device is done with the round. Round.Wait calls Test, and Round.Test calls Arrived.
type RoundHandle interface {
	Handle
	// Arrived drives the round, and reports whether all its messages have arrived on the device. The
	// caller still calls Test until Test returns true.
	Arrived() (bool, error)
}
