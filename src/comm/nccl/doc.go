// Package nccl moves the memory of GPUs between ranks by NCCL, which is opened at run time. In
// come memory, the event after which the memory is ready, a rank and a tag. Out goes a
// comm.Handle. It needs cgo, but nothing of CUDA or NCCL to build.
//
// NCCL knows no tags. It does the operations of one communicator in the order in which they were
// issued. Its kernels hold multiprocessors until both GPUs have met. So a rank has two
// communicators: that of the world and that of its chain. At the ends of a chain where messages
// go around it has a third: that of the chain's two ends. Each has one stream, of high priority,
// and few CTAs. An operation is issued when its event has happened on the GPUs of all ranks that
// take part. Control messages over the transport of host memory tell that.
//
// Rounds (comm.Group.Exchange) travel on the world's communicator, those of its rows and chains
// too, each as one group of operations. A rank that is ready for the first of its rounds tells
// all other ranks of the round. It issues the round once all of these ranks are ready too.
//
// Messages travel between neighbours of a chain. For each pair:
//
//   - clear-to-send: the receiver sends the tag and the room of a receive whose memory is free;
//   - ready-to-send: the upper rank matches these with its messages by tag, and sends tag and
//     length of each that is ready; the lower rank keeps its own to itself;
//   - order: the lower rank takes the oldest message of each direction, as soon as all earlier
//     operations are on NCCL's stream. It tells the upper rank, and issues both at once.
//
// A rank issues at most one message in each direction of each pair at a time, as one group. NCCL
// runs the halves of a group at once: up to eight for each channel
// (NCCL_MAX_DEV_WORK_P2P_PER_BATCH in its src/include/device.h). Both ranks of a pair have the
// same halves in a group. Their connection needs that if the two are all ranks of a communicator:
// src/transport.cc then sends the connections of both directions as one message.
//
// Nothing can hang. Rounds: all ranks begin them in one order. So the first round that is not
// done is under way, or will be, on all its ranks. Messages: a rank whose group is under way
// waits for a neighbour that has not come to the same exchange yet. This neighbour is busy with
// an earlier group. A pair has one order of exchanges, so the neighbour waits for its other
// neighbour. A chain is a path: these waits go one way and end at a rank that waits for nobody.
// The two ends of a chain would close the path to a ring, so they have a communicator of their
// own.
//
// Rounds, chain and ends never wait for each other, on the device either. NCCL puts kernels of
// communicators one behind the other if they share resources (deviceStream of
// ncclSharedResources, src/enqueue.cc from 2.18 to 2.29), so these communicators share none.
// Whether a part shares is a setting of the communicator that the part is split from
// (src/init.cc, splitShare). So rows have no communicator: it would share the world's.
//
// Each communicator has a thread that makes all its calls (see owner). The rank's thread hands
// a group over and goes on. Ready, Drive and the Test of any handle see when the group is on
// the stream. Communicators do not block, so that an owner can abort its own at any time. An
// abort from another thread would free memory that a blocking group still uses (commReclaim,
// src/init.cc of 2.18 to 2.26). Since version 2.23 NCCL itself starts a thread for each group.
//
// Before version 2.18 NCCL cannot split a communicator, and all begin with an identity that
// rank 0 of each sends.
package nccl
