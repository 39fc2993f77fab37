package pipeline

import (
	"dynmo/src/cost"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// buffers is how many buffers a virtual stage has.
type buffers struct {
	activations int // for microbatches in flight
	stashes     int // for microbatches between I and W
	recomputed  int // for microbatches with what layers compute again
	entering    int // for activations of the virtual stage before
	gradients   int // for gradients of the one behind
	outgoing    int // for gradients on their way to another rank
}

// countBuffers returns the buffers of a virtual stage at its peak. What arrives
// from another rank has one buffer more than can be in use, so that the next
// message can arrive early; what is of this rank, one for each microbatch in
// flight.
func countBuffers(m partition.Map, virtual int, p schedule.Peak) buffers {
	b := buffers{activations: p.InFlight, stashes: p.Between, recomputed: p.Recomputed, entering: p.InFlight + 1, gradients: p.Between + 1, outgoing: p.Outgoing}
	switch {
	case virtual == 0:
		b.entering = 0
	case m.Stage(virtual-1) == m.Stage(virtual):
		b.entering = p.InFlight
	}
	switch {
	case virtual == m.Virtual()-1:
		b.gradients = 0
	case m.Stage(virtual+1) == m.Stage(virtual):
		b.gradients = p.InFlight
	}
	return b
}

// FixedBytes returns a function for the memory of a virtual stage besides its layers. peak is the
// virtual stage's, from schedule.Schedule.Peaks. The memory is:
//
//   - the buffers of activations and gradients at its two boundaries. Of the gradients at its end it
//     leaves out peak.Between, which the last layer counts as Held (see model.Layer.Bytes);
//   - the input batches, if layers of the chain select tokens;
//   - for a stage's first chunk, what the stage needs once: the layers' scratch memory, counted as
//     at least one boundary, and the full batch;
//   - for the first chunk of the first stage, a received gradient of a tied matrix.
//
// Memory for sums of gradients over replicas is not included (see schedule.Sums.Bytes).
func FixedBytes(x *model.Exec, c model.Config) func(m partition.Map, virtual int, peak schedule.Peak) cost.Memory {
	boundary, ties, last := x.LargestBoundary(c), c.Ties(), c.Layers()-1
	scratch, received := max(boundary, x.ScratchBytes(c)), int64(0)
	if c.Selects(c.Layers()) {
		received = x.SubsetBytes()
	}
	return func(m partition.Map, virtual int, peak schedule.Peak) cost.Memory {
		n := countBuffers(m, virtual, peak)
		bytes := cost.Memory{Boundary: int64(n.entering+n.outgoing+max(0, n.gradients-peak.Between)) * boundary}
		if virtual > 0 {
			bytes.Batch = int64(n.activations) * received
		}
		if m.Chunk(virtual) > 0 {
			return bytes
		}
		bytes.Scratch = scratch
		bytes.Batch += x.BatchBytes()
		for _, t := range ties {
			remote := m.Stages > 1 && (t.Borrower < last || m.Stage(m.Virtual()-1) != m.Stage(0))
			if remote && m.Stage(virtual) == m.Stage(0) {
				bytes.Sums = max(bytes.Sums, tiedBytes(x, t))
			}
		}
		return bytes
	}
}

// tiedBytes returns the bytes of the gradient of the rows that a tie borrows.
func tiedBytes(x *model.Exec, t model.Tie) int64 {
	return int64(t.Rows*t.Cols) * x.Backend.DType().Wide().Size()
}

// sumBytes is the most gradients that are summed at a time: a piece that stays
// in the cache.
const sumBytes = 1 << 20
