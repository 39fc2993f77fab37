// Package comm is the boundary to other ranks. A Transport moves memory
// between ranks (goroutines in comm/local, processes in comm/mpi); a Group
// builds everything else on it: requests with deadlines, messages of bytes,
// and collectives in a fixed order, so that a result never depends on a
// library's choice of algorithm.
package comm

import (
	"fmt"
	"math"
	"time"

	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Transport is a backend's non-blocking messages of host memory between the
// ranks of one group. Messages between two ranks with one tag arrive in the
// order they were sent. Only the rank's owner goroutine calls it.
type Transport interface {
	// Rank returns this rank in the group; Size the number of ranks.
	Rank() int
	Size() int
	// Peer describes a rank of the group.
	Peer(rank int) Peer
	// Stamp sets whether messages carry the time they arrive; at first they do not.
	// All ranks of the group call it alike while no message is under way. Split
	// passes it on.
	Stamp(on bool)
	// Isend begins to send m. The stamp, in seconds, travels with it if the
	// group is stamped. m must not change until the handle is done.
	Isend(to, tag int, m tensor.Mem, stamp float64) (Handle, error)
	// Irecv begins to receive at most m.Bytes into m. A longer message is an error
	// of the handle; of a shorter one the handle tells how long it was.
	Irecv(from, tag int, m tensor.Mem) (Handle, error)
	// Alloc gives host memory that transfers may use without copying; Free returns it.
	Alloc(bytes int64) (tensor.Mem, error)
	Free(m tensor.Mem)
	// Split forms groups of the ranks with equal color, ordered by key, then by
	// rank. A rank whose color is negative is in none of them and gets nil. Collective.
	Split(color, key int) (Transport, error)
	// Close frees the group's resources. Collective.
	Close() error
	// Abort ends every rank of the world, with this exit status where ranks are
	// processes; goroutines get an error from whatever they wait for.
	Abort(status int)
}

// Outside is the color of a rank that is in none of the groups that a Split forms.
const Outside = -1

// Handle is a transfer under way.
type Handle interface {
	// Test reports whether the transfer is done, and drives it: once, or, where
	// polling is how a transport waits, again and again until spin has passed.
	// With true the handle goes back to the transport, which uses it again, and got
	// describes the message of a receive.
	Test(spin time.Duration) (done bool, got Arrival, err error)
}

// Arrival describes the message of a receive that is done.
type Arrival struct {
	Stamp float64 // the one that Isend was given, in a stamped group
	Bytes int64
}

// Sleeper is a Handle that can be waited for without polling.
type Sleeper interface {
	// Sleep returns when the transfer is done or has failed, or after d.
	Sleep(d time.Duration)
}

// Peer identifies a rank, for errors and for finding out whether it lives.
type Peer struct {
	World int    // rank in the world
	Host  string // host name
	PID   int    // process id on that host
}

func (p Peer) String() string {
	return fmt.Sprintf("rank %d (host %s, pid %d)", p.World, p.Host, p.PID)
}

// Network is the cost of messages on a virtual clock. Every ordered pair of
// ranks has a link of its own, which carries one message at a time: a message
// occupies it for bytes/bandwidth and arrives latency after that. Links do not
// slow each other down. The zero Network costs nothing.
type Network struct {
	Latency   float64 // seconds
	Bandwidth float64 // bytes per second of a link; 0 means infinite
	Delay     Delay
}

// Travel returns the time at which a message leaves its link free for the next message, and the
// time at which the message arrives. It is sent at start, on a link that is busy until busy. With
// factor from Delay,
//
//	departs = max(start, busy)
//	leaves  = departs + factor·bytes/bandwidth
//	arrives = departs + factor·(latency + bytes/bandwidth)
//
// A delay is a larger message, as in the paper's experiment (figure 7), so it
// keeps the link from the next one too.
func (n Network) Travel(start, busy float64, bytes int64, factor float64) (leaves, arrives float64) {
	departs := max(start, busy)
	occupied := 0.0
	if n.Bandwidth != 0 {
		occupied = factor * (float64(bytes) / n.Bandwidth)
	}
	return departs + occupied, departs + (factor*n.Latency + occupied)
}

// Seconds returns the time from a message's departure to its arrival if nothing
// delays it, latency + bytes/bandwidth. The wait for the link is not in it.
func (n Network) Seconds(bytes int64) float64 {
	_, arrives := n.Travel(0, 0, bytes, 1)
	return arrives
}

// Delay makes messages take longer, at random. The zero Delay makes none.
type Delay struct {
	Most float64 // largest factor of a message's latency and transfer; up to 1 none is delayed
	Seed uint64
}

// Mean returns the mean factor, 1 + √(2/π)/3·(Most-1). The cut at three standard
// deviations takes another 0.00025·(Most-1) away, which is left out.
func (d Delay) Mean() float64 { return 1 + math.Sqrt(2/math.Pi)/3*(max(d.Most, 1)-1) }

// Factor returns the delay of a message, half-normal in [1, Most] (see random.Delay). Its key is
// the seed, the sender's and the receiver's rank in the world, the tag, and the number of earlier
// messages with this tag from the same sender to the same receiver. No other message changes it.
func (d Delay) Factor(from, to, tag int, before uint64) float64 {
	return random.Delay(d.Most, d.Seed, uint64(from), uint64(to), uint64(tag), before)
}

// Tags below TagCollective are for messages that rooms send; those from there
// on belong to the collectives of Group. MPI guarantees 32767.
const (
	TagForward    = 0     // + n % TagMicrobatches: activations, n = receiver's chunk·microbatches + microbatch
	TagBackward   = 8192  // + n % TagMicrobatches: gradients
	TagReduce     = 16384 // gradient slices between replicas
	TagTied       = 16385 // tied embedding: gradients and weights
	TagHeader     = 16386 // names and lengths of a migrating layer's sections
	TagSection    = 16387 // a migrating layer's sections
	TagDynamic    = 16388 // decisions about the model
	TagBalance    = 16389 // neighbour exchange of diffusion
	TagRows       = 16390 // tokens that replicas compute for each other: how many, then their rows
	TagOrder      = 16391 // of rank 0 to a rank that holds no layer
	TagWord       = 16392 // of such a rank to rank 0
	TagLikeliest  = 16393 // what the last layer says of a microbatch's tokens, for layers that learn from it
	TagIndex      = 16394 // + n % TagIndexes, n as of TagForward: which tokens the activations are of
	TagValidation = 22528 // + 2·receiver's chunk: activations of validation, and behind it which tokens they are of
	tagCollective = 24576
	TagDevice     = 28000 // and the next: control messages of transports of device memory

	TagMicrobatches = 8192
	TagIndexes      = TagValidation - TagIndex

	// TagChunks is how many chunks of a stage TagValidation has tags for.
	TagChunks = (tagCollective - TagValidation) / 2
)
