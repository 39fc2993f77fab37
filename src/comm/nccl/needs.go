package nccl

import "fmt"

// Needs is what the transports of one world take of a rank's GPU and process. A resize needs one communicator more for a moment.
type Needs struct {
	Communicators int   `json:"communicators"`
	Streams       int   `json:"streams"` // of the GPU: one of each communicator, one that waits for events; without NCCL's own two of each communicator
	CTAs          int   `json:"ctas"`    // of kernels that run at one time
	Threads       int   `json:"threads"` // of NCCL, and those that own a communicator
	Bytes         int64 `json:"bytes"`   // of the GPU, for connections
}

// Sources are NCCL's files of version 2.22, unless they say otherwise; 2.29 has the same.
const (
	// connectionBytes is the buffers of a connection of one channel from a rank of the same
	// host. Protocol LL has 8 lines x 512 threads x 8 steps x 16 bytes, LL128 has 120 words
	// x 640 threads x 8 steps x 8 bytes, and Simple the rest (src/init.cc, computeBuffSizes;
	// src/transport/p2p.cc, p2pRecvSetup).
	connectionBytes = 524288 + 4915200 + 4194304
	// networkBytes is what a channel has for all messages from ranks of other hosts and to
	// them: two times 16 steps of 128 KiB (src/transport/net.cc, sharedNetBuffersInit).
	networkBytes = 2 * 16 * 131072
	// threadsEach is the threads of a communicator with resources of its own: its owner, and
	// NCCL's for connections, for file descriptors of memory, and for messages over a network
	// (src/proxy.cc, ncclProxyCreate and ncclProxyProgressCreate).
	threadsEach = 4
)

// NeedsOf returns the needs of a rank in a world of stages and replicas, with up to onHost ranks
// on a host. Kernels take at most ctas CTAs, which are NCCL's channels.
// With a world of P·D ranks, c CTAs and h ranks on a host,
//
//	communicators = 1 + [P > 1] + [P > 2]
//	bytes = c · ((min(P+D-2, h-1) + min(2, P-1, h-1) + [P > 2]·[h > 1])·9,633,792
//	        + communicators·[P·D > h]·4,194,304)
//
// The first term is the replicas of the stage and, where layers move or matrices are tied, the
// stages of the replica. The second is the neighbours, the third the other end of the chain.
// Connections are made when first needed. Versions before 2.22 make those of collectives too,
// which nothing uses.
func NeedsOf(stages, replicas, onHost, ctas int) Needs {
	if stages*replicas < 2 {
		return Needs{}
	}
	n := Needs{Communicators: 1}
	near := min(stages+replicas-2, onHost-1)
	if stages > 1 {
		n.Communicators++
		near += min(2, stages-1, onHost-1)
	}
	if stages > 2 {
		n.Communicators++
		near += min(1, onHost-1)
	}
	n.Streams, n.CTAs, n.Threads = n.Communicators+1, n.Communicators*ctas, n.Communicators*threadsEach
	n.Bytes = int64(ctas) * int64(near) * connectionBytes
	if stages*replicas > onHost {
		n.Bytes += int64(ctas) * int64(n.Communicators) * networkBytes
	}
	return n
}

func (n Needs) String() string {
	return fmt.Sprintf("up to %d communicators, %d thread blocks at a time, %d threads and %.1f GB of the GPU for each rank",
		n.Communicators, n.CTAs, n.Threads, float64(n.Bytes)/1e9)
}
