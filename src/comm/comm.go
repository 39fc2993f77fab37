// Package comm is the boundary to other ranks. A Transport moves memory
// between ranks (goroutines in comm/local, processes in comm/mpi); a Group
// builds everything else on it: requests with deadlines, messages of bytes,
// and collectives in a fixed order, so that a result never depends on a
// library's choice of algorithm.
package comm

import (
	"time"

	"dynmo/src/tensor"
)

// Transport is what a backend provides: non-blocking messages between the
// ranks of one group. Messages between two ranks with one tag arrive in the
// order they were sent. Only the rank's owner goroutine calls it.
type Transport interface {
	// Rank returns this rank in the group; Size the number of ranks.
	Rank() int
	Size() int
	// Peer describes a rank of the group.
	Peer(rank int) Peer
	// Stamp says whether messages carry the time they depart. All ranks of the
	// group say the same while no message is under way. Split passes it on; at
	// first they do not.
	Stamp(on bool)
	// Isend begins to send m. The stamp, in seconds, travels with it if the
	// group is stamped. m must not change until the handle is done.
	Isend(to, tag int, m tensor.Mem, stamp float64) (Handle, error)
	// Irecv begins to receive exactly m.Bytes into m. A message of another
	// length is an error of the handle.
	Irecv(from, tag int, m tensor.Mem) (Handle, error)
	// Alloc gives host memory that transfers may use without copying; Free returns it.
	Alloc(bytes int64) (tensor.Mem, error)
	Free(m tensor.Mem)
	// Split forms groups of the ranks with equal color, ordered by key, then by rank. Collective.
	Split(color, key int) (Transport, error)
	// Close frees the group's resources. Collective.
	Close() error
	// Abort ends every rank of the world, with this exit status where ranks are
	// processes; goroutines get an error from whatever they wait for.
	Abort(status int)
}

// Handle is a transfer under way.
type Handle interface {
	// Test reports whether the transfer is done, and drives it: once, or, where
	// polling is how a transport waits, again and again until spin has passed.
	// With true the handle goes back to the transport, which uses it again.
	// stamp is the one that Isend was given, for a receive in a stamped group.
	Test(spin time.Duration) (done bool, stamp float64, err error)
}

// Sleeper is a Handle that can be waited for without polling.
type Sleeper interface {
	// Sleep returns when Test has something new to say, or after d.
	Sleep(d time.Duration)
}

// Peer is who a rank is, for errors and for finding out whether it lives.
type Peer struct {
	World int    // rank in the world
	Host  string // host name
	PID   int    // process id on that host
}

// Network is the cost of messages on a virtual clock. Every ordered pair of
// ranks has a link of its own, which carries one message at a time: a message
// occupies it for bytes/bandwidth and arrives latency after that. Links do not
// slow each other down. The zero Network costs nothing.
type Network struct {
	Latency   float64 // seconds
	Bandwidth float64 // bytes per second of a link; 0 means infinite
}

// Seconds returns the time from a message's departure to its arrival, latency
// + bytes/bandwidth. The wait for the link is not in it.
func (n Network) Seconds(bytes int64) float64 { return n.Latency + n.occupied(bytes) }

// occupied returns how long a message keeps its link from the next one.
func (n Network) occupied(bytes int64) float64 {
	if n.Bandwidth == 0 {
		return 0
	}
	return float64(bytes) / n.Bandwidth
}

// Tags below TagCollective are for messages that rooms send; those from there
// on belong to the collectives of Group. MPI guarantees 32767.
const (
	TagForward    = 0     // + microbatch % TagMicrobatches: activations
	TagBackward   = 8192  // + microbatch % TagMicrobatches: gradients
	TagReduce     = 16384 // gradient slices between replicas
	TagTied       = 16385 // tied embedding: gradients and weights
	TagHeader     = 16386 // what a migrating layer's sections will be
	TagSection    = 16387 // a migrating layer's sections
	TagDynamic    = 16388 // decisions about the model
	TagBalance    = 16389 // neighbour exchange of diffusion
	TagCollective = 24576

	TagMicrobatches = 8192
)
