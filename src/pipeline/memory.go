package pipeline

import "dynmo/src/model"

// FixedBytes returns the memory of a stage that does not depend on which
// layers it holds: buffers for what crosses its two boundaries, one more each
// than can be in use, the layers' scratch, and on stage 0 the head's gradient
// of a tied embedding. inFlight is its microbatches in flight.
func FixedBytes(x *model.Exec, c model.Config, stage, stages, inFlight int) int64 {
	buffers := 1 // scratch
	if stage > 0 {
		buffers += inFlight + 1 + 2 // activations that come, gradients that go
	}
	if stage < stages-1 {
		buffers += 2 // gradients that come
	}
	buffers-- // layers count one gradient each between them: one too many
	bytes := int64(buffers) * x.Boundary(c)
	if c.Tied && stage == 0 && stages > 1 {
		bytes += int64(c.Vocab*c.Hidden) * x.Backend.DType().Size()
	}
	return bytes
}

// ReduceBytes returns the memory that summing a layer's gradients over
// replicas takes: the others' copies of this replica's slice. The sum itself takes SumBytes of the
// largest layer.
func ReduceBytes(gradients int64, replicas int) int64 {
	return gradients * int64(replicas-1) / int64(replicas)
}

// SumBytes returns the memory that holds the sum of one slice of a layer's
// gradients.
func SumBytes(gradients int64, replicas int) int64 {
	if replicas == 1 {
		return 0
	}
	return gradients / int64(replicas)
}
