// Package cuda is an NVIDIA GPU as a device, through its driver. It has memory that is kept for
// reuse, pinned host memory, streams, and events that time work without making the host wait. It
// needs the build tag cuda. A binary with that tag ends before main if the driver finds no GPU.
// Probe, which binaries without the tag also have, asks the driver first.
package cuda
