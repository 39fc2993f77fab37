// Package cuda is an NVIDIA GPU as a device, through its driver: memory that is
// kept for later use, pinned host memory, streams, and events that time work
// without the host waiting for it. It needs the build tag cuda; a binary with
// that tag ends before main where the driver finds no GPU. Probe, which a
// binary of any tags has, asks the driver first.
package cuda
