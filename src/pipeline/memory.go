package pipeline

import "dynmo/src/model"

// FixedBytes returns the memory of a stage that does not depend on which
// layers it holds: buffers for what crosses its two boundaries, one more each
// than can be in use, the layers' scratch, and on stage 0 a slice of the head's
// gradient of a tied embedding. inFlight is its microbatches in flight.
func FixedBytes(x *model.Exec, c model.Config, stage, stages, inFlight int) int64 {
	buffers := 1 // scratch
	if stage > 0 {
		buffers += inFlight + 1 + 2 // activations that come, gradients that go
	}
	if stage < stages-1 {
		buffers++ // gradients that come: the last layer counts the other
	}
	bytes := int64(buffers) * x.LargestBoundary(c)
	if c.Tied && stage == 0 && stages > 1 {
		bytes += tiedBytes(x, c)
	}
	return bytes
}

// tiedBytes returns the size of the largest slice of a tied embedding.
func tiedBytes(x *model.Exec, c model.Config) int64 {
	largest := 0
	for k := range c.Slices() {
		lo, hi := c.Slice(k)
		largest = max(largest, hi-lo)
	}
	return int64(largest*c.Hidden) * x.Backend.DType().Size()
}

// ReduceBytes returns the memory that summing a layer's gradients over replicas
// takes: the others' copies of this replica's slice. The sum itself takes
// SumBytes of the largest layer.
func ReduceBytes(gradients int64, replicas int) int64 {
	return gradients * int64(replicas-1) / int64(replicas)
}

// sumBytes is the most gradients that are summed at a time: a piece that stays
// in the cache.
const sumBytes = 1 << 20

// SumBytes returns the memory that holds a sum of gradients of a layer.
func SumBytes(gradients int64, replicas int) int64 {
	if replicas == 1 {
		return 0
	}
	return min(gradients/int64(replicas), sumBytes)
}
