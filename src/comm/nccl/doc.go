// Package nccl moves the memory of GPUs between ranks by NCCL, which is opened
// at run time: in come memory, the event it is ready after, a rank and a tag;
// out goes a comm.Handle. It needs cgo, but nothing of CUDA or NCCL to build.
//
// NCCL knows no tags, does the messages of one communicator in the order in
// which they were issued, and makes both GPUs wait until they meet. So every
// ordered pair of ranks has a lane of its own, a communicator of the two with a
// stream, and the ranks agree on the order of messages over the control
// transport before they issue any:
//
//   - the receiver tells the sender what it is ready to receive: a grant;
//   - the sender matches grants with its messages by tag, tells the receiver
//     which comes next (a go), and issues it at once;
//   - the receiver issues its half when the go comes.
//
// What is on a lane's stream therefore always has its other half under way, and
// nothing waits behind a receive that was not posted. No call blocks: lanes are
// made, and NCCL is asked how far it is, in the Test of any handle.
package nccl
