package plan

import (
	"dynmo/src/cost"
	"dynmo/src/trace"
)

// Analysis says how well the layout of a measured step fits the costs of its layers.
type Analysis struct {
	Bottleneck float64        // seconds of the most loaded stage for one microbatch, all its chunks together
	Optimum    float64        // smallest Bottleneck of any cuts with one chunk on each stage, without a memory limit; at most Bottleneck
	Headroom   float64        // upper bound of the speedup by other cuts: 1 is none (see balance.Headroom)
	Predicted  float64        // Makespan of the layout with the measured costs, in seconds
	LowerBound float64        // least Makespan of any schedule of these cuts within the memory, in seconds
	Idle       trace.Idle     // why stages waited
	Bytes      []int64        // by stage: bytes of layers and buffers
	Took       [][]cost.Stage // by virtual stage and microbatch: measured seconds of F, I and W
}
