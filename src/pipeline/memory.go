package pipeline

import (
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// FixedBytes returns the memory of a virtual stage that does not depend on
// which layers it holds: buffers for what crosses its two ends (see rooms), and
// with the first chunk of a stage what the stage needs once: the layers'
// scratch and indices, and, on stage 0, a slice of the head's gradient of a tied embedding.
// peak is the virtual stage's. The gradients that come to its last layer are
// held by that layer: as many as are between their two backwards.
func FixedBytes(x *model.Exec, c model.Config, m partition.Map, virtual int, peak schedule.Peak) int64 {
	buffers := 0
	switch {
	case virtual == 0:
	case m.Stage(virtual-1) == m.Stage(virtual):
		buffers += peak.InFlight
	default:
		buffers += peak.InFlight + 1 + peak.Outgoing
	}
	switch {
	case virtual == m.Virtual()-1:
	case m.Stage(virtual+1) == m.Stage(virtual):
		buffers += peak.InFlight - peak.Between
	default:
		buffers++
	}
	if m.Chunk(virtual) > 0 {
		return int64(buffers) * x.LargestBoundary(c)
	}
	bytes := int64(buffers+1)*x.LargestBoundary(c) + x.IndexBytes()
	if m.Stage(virtual) == 0 && borrowsAfar(c, m) {
		bytes += tiedBytes(x, c)
	}
	return bytes
}

// borrowsAfar reports whether a tied embedding may be borrowed on another stage
// than its own.
func borrowsAfar(c model.Config, m partition.Map) bool {
	return c.Tied && m.Stages > 1 && (c.Slices() > 1 || m.Stage(m.Virtual()-1) != m.Stage(0))
}

// tiedBytes returns the size of the largest slice of a tied embedding.
func tiedBytes(x *model.Exec, c model.Config) int64 {
	largest := 0
	for k := range c.Slices() {
		lo, hi := c.Slice(k)
		largest = max(largest, hi-lo)
	}
	return int64(largest*c.Hidden) * x.Backend.DType().Wide().Size()
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
