// Package nccl moves the memory of GPUs between ranks by NCCL, which is opened
// at run time: in come memory, the event that it is ready after, a rank and a tag;
// out goes a comm.Handle. It needs cgo, but nothing of CUDA or NCCL to build.
//
// NCCL knows no tags, does the messages of one communicator in the order in
// which they were issued, and makes both GPUs wait until they meet. So every
// ordered pair of ranks has a channel of its own, a communicator of the two with a
// stream, and the ranks agree on the order of messages by control messages over
// the transport of host memory before they issue any:
//
//   - clear-to-send: the receiver sends the tag and the room of a receive;
//   - ready-to-send: the sender matches these with its messages by tag, sends tag
//     and length of the one that is next, and issues it at once;
//   - the receiver issues its half, of that length, when ready-to-send arrives.
//
// The other half of an operation on a channel's stream is therefore always under
// way, and nothing waits behind a receive that was not posted. No call blocks:
// channels are made, and NCCL is polled, in the Test of any handle.
package nccl
