package comm

import (
	"fmt"
	"math"
	"time"

	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Transport is one rank's side of a backend. It moves host memory between the ranks of one group,
// without blocking. Messages between two ranks with one tag arrive in the order in which they were
// sent. Only the rank's owner goroutine calls a Transport.
type Transport interface {
	// Rank returns the index of this rank in the group, from 0. Size returns the number of ranks.
	Rank() int
	Size() int
	// Peer describes a rank of the group.
	Peer(rank int) Peer
	// Stamp sets whether messages carry a stamp; at first they do not. A stamp is the time at
	// which the message arrives, in seconds of the virtual clock; the sender computes the time
	// (Network.Travel). All ranks of the group call Stamp with the same value, while no message is
	// under way. Groups of Split begin with this value.
	Stamp(on bool)
	// Isend begins to send m to a rank. stamp travels with m if messages carry stamps. m must not
	// change until the handle is done.
	Isend(to, tag int, m tensor.Mem, stamp float64) (Handle, error)
	// Irecv begins to receive at most m.Bytes from a rank into m. A longer message is an error of
	// the handle. A shorter message is allowed; Arrival.Bytes is its length.
	Irecv(from, tag int, m tensor.Mem) (Handle, error)
	// Alloc returns host memory that transfers may use without copying. Free gives the memory back.
	Alloc(bytes int64) (tensor.Mem, error)
	Free(m tensor.Mem)
	// Split forms one group of all ranks that give the same color. Its ranks are ordered by key,
	// then by rank. A rank whose color is negative is in no new group and gets nil. Collective.
	Split(color, key int) (Transport, error)
	// Close frees the group's resources. Collective.
	Close() error
	// Abort ends every rank of the world. Where ranks are processes, they exit with status. Where
	// ranks are goroutines, every present and later wait returns an error.
	Abort(status int)
}

// Outside is the color that a rank gives to Split to be in no new group.
const Outside = -1

// Handle is a transfer under way: one message, or one piece of a message.
type Handle interface {
	// Test drives the transfer, and reports whether the transfer is done. A transport may try once
	// and return, or may poll until the transfer is done or spin has passed. So a caller must not
	// take spin for a wait. After a receive got describes the message. The caller does not use the
	// handle again once done is true: the transport gives the handle to a later transfer.
	Test(spin time.Duration) (done bool, got Arrival, err error)
}

// Arrival describes the message of a receive that is done.
type Arrival struct {
	Stamp float64 // the stamp that Isend was given; meaningless where messages carry no stamps
	Bytes int64   // length of the message
}

// Sleeper is a Handle on which a rank can sleep instead of polling.
type Sleeper interface {
	// Sleep returns when the transfer is done or has failed, or after d.
	Sleep(d time.Duration)
}

// Peer identifies a rank, for errors and for finding out whether the rank still runs.
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

// Travel returns when a message leaves its link free for the next message, and when the message
// arrives. The message is sent at the time start; earlier messages occupy the link until busy. All
// times are seconds of a virtual clock. factor (Delay.Factor) is at least 1:
//
//	departs = max(start, busy)
//	leaves  = departs + factor·bytes/bandwidth
//	arrives = departs + factor·(latency + bytes/bandwidth)
//
// A delayed message also occupies the link longer, so later messages wait. This follows the
// experiment with delays of DynMo's paper (figure 7).
func (n Network) Travel(start, busy float64, bytes int64, factor float64) (leaves, arrives float64) {
	departs := max(start, busy)
	occupied := 0.0
	if n.Bandwidth != 0 {
		occupied = factor * (float64(bytes) / n.Bandwidth)
	}
	return departs + occupied, departs + (factor*n.Latency + occupied)
}

// Seconds returns the time from a message's departure to its arrival if nothing delays the
// message: latency + bytes/bandwidth. The time for which a message waits for its link is left out.
func (n Network) Seconds(bytes int64) float64 {
	_, arrives := n.Travel(0, 0, bytes, 1)
	return arrives
}

// Delay makes messages take longer, at random. The zero Delay delays no message.
type Delay struct {
	Most float64 // largest factor by which latency and transfer time grow; 1 or less: no delays
	Seed uint64  // of the random numbers
}

// Mean returns the mean factor, 1 + √(2/π)/3·(Most-1). It leaves out that factors are cut at three
// standard deviations, which lowers the mean by 0.00025·(Most-1).
func (d Delay) Mean() float64 { return 1 + math.Sqrt(2/math.Pi)/3*(max(d.Most, 1)-1) }

// Factor returns by which factor a message takes longer, half-normal in [1, Most] (see
// random.Delay). from and to are ranks of the world. before is the number of earlier messages with
// the same sender, receiver and tag. The factor depends on these, the tag and the seed alone.
func (d Delay) Factor(from, to, tag int, before uint64) float64 {
	return random.Delay(d.Most, d.Seed, uint64(from), uint64(to), uint64(tag), before)
}

// Tags of messages, within what MPI guarantees: 0 to 32767. Other packages send with the tags below
// 24576. The collectives of Group use the tags from 24576 to TagDevice-1. Transports of device
// memory use the tags from TagDevice on.
//
// A stage holds one or more chunks of the chain of layers. In a formula chunk is the number of the
// receiver's chunk, and n = chunk·microbatches + microbatch. Numbers that exceed a range begin again
// at its start. Package pipeline allows that only if receives are posted in the order of the sends:
// then messages with equal tags cannot be mixed up.
const (
	TagForward    = 0     // + n % TagMicrobatches: activations
	TagBackward   = 8192  // + n % TagMicrobatches: gradients of activations
	TagReduce     = 16384 // slices of gradients, between replicas
	TagTied       = 16385 // gradients and weights of tied embeddings
	TagHeader     = 16386 // names and lengths of a migrating layer's sections
	TagSection    = 16387 // a migrating layer's sections
	TagDynamic    = 16388 // decisions about the model
	TagBalance    = 16389 // loads that neighbouring stages exchange for the diffusion balancer
	TagRows       = 16390 // tokens that replicas compute for each other: their number, then their rows
	TagOrder      = 16391 // orders of rank 0 to ranks that hold no layer (package elastic)
	TagWord       = 16392 // messages of ranks that hold no layer to rank 0 (package elastic)
	TagLikeliest  = 16393 // the last layer's likeliest tokens of a microbatch, for layers that learn from them
	TagIndex      = 16394 // + n % TagIndexes: the indices of the tokens whose activations are sent
	TagValidation = 22528 // + 2·chunk: activations of validation; + 2·chunk + 1: the indices of their tokens
	tagCollective = 24576
	TagDevice     = 28000 // this tag and the tags above it: control messages of a DeviceTransport

	// TagMicrobatches is how many tags TagForward and TagBackward have each.
	TagMicrobatches = 8192
	// TagIndexes is how many tags TagIndex has.
	TagIndexes = TagValidation - TagIndex
	// TagChunks is how many chunks of a stage TagValidation has tags for.
	TagChunks = (tagCollective - TagValidation) / 2
)
