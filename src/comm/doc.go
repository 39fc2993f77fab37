// Package comm is the boundary to other ranks. A rank is one goroutine (backend comm/local) or one
// process (backend comm/mpi). The world is the group of all ranks of a run.
//
// In comes a Transport, which moves host memory between ranks, and the Options. Out goes a Group. It
// sends and receives memory and bytes, splits into smaller groups, and has collectives. A
// DeviceTransport (comm/nccl, or Staged) adds the memory of GPUs.
//
// "Collective." in a doc comment, here and in other packages, means three things. Every rank of the
// group calls the function. All ranks make the collective calls of one group in the same order. A
// call may wait until the other ranks have made the same call. A rank on which a collective call
// fails does not tell the others: they wait until their own deadline. Agree and AnyFailed share
// errors.
//
// The uses of device memory depend on the Kind of a group. Row and Chain have device memory only
// if the group that they are split from has it. The columns say which calls work:
//
//	group                     Send, Recv of host memory   Exchange of device memory   Send, Recv of device memory
//	of New (see HostOnly)     any ranks                   no                          no
//	Apart                     any ranks                   any ranks                   no
//	Row                       any ranks                   any ranks                   no
//	Chain                     any ranks                   any ranks                   neighbours (DeviceTransport.Send)
//
// Exchange of host memory works in every group. Where the last column says no, a send of device
// memory by comm/nccl panics. The transports of Staged send device memory in groups of every kind,
// between any ranks.
//
// Invariants. Only the rank's owner goroutine uses a Group. Memory that is sent does not change
// until its request is done. Memory of messages comes from Group.Alloc or a device.Device, not
// directly from Go's heap. Messages of one sender, receiver and tag arrive in the order in which
// they were sent. Allreduce folds in rank order, so
// its bits do not depend on where ranks run.
//
// Others rely on these, so do not change them alone. Package comm/nccl and the delays of package sim
// use the numbers of the tags. Package sim computes with Network.Travel and Delay.Factor. Losses
// depend on the order of Allreduce. Callers rely on the order of rounds.
//
// Free to change: a backend, as long as the suite comm/commtest passes; how a wait polls
// and sleeps; the trees of Bcast, Fold and Barrier; the memory layout of a Board, since all
// processes of a run are one binary.
package comm
