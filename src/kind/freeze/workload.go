package freeze

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// workload freezes blocks from the front, with all layers before them, as one of the recorded runs
// did in which plasticity decided (see plasticity). A frozen layer keeps its forward. Its w is
// gone, and so is its i: everything upstream is frozen, so nothing needs it. Its gradients are
// neither kept nor summed over replicas. Optimizer state stays: layers may thaw. The first layer
// that trains keeps its i, because its own w needs parts of it.
type workload struct {
	Most  float64 // largest share of the blocks that is frozen; 0: as it was recorded
	Thaws bool    // whether all thaw when they did in the recorded run
}

// frozenFrom is how many blocks are frozen from a step on.
type frozenFrom struct{ step, blocks int }

// recordedFreezes are the runs of the second table of results/freeze-times.txt, recordedSteps long
// with recordedBlocks blocks, seeds 1 to 8. The learning rate fell to a tenth; at a third all
// thawed.
var recordedFreezes = [][]frozenFrom{
	{{151, 1}, {161, 2}, {171, 4}, {211, 5}, {240, 0}},
	{{111, 4}, {211, 8}, {222, 0}, {281, 4}},
	{{121, 1}, {131, 4}, {181, 5}, {201, 6}, {226, 0}, {281, 2}},
	{{131, 1}, {141, 2}, {151, 4}, {221, 5}, {230, 0}},
	{{111, 1}, {121, 4}, {171, 5}, {181, 7}, {191, 8}, {222, 0}},
	{{101, 1}, {121, 4}, {191, 8}, {218, 0}},
	{{141, 2}, {151, 4}, {235, 0}},
	{{121, 1}, {131, 4}, {191, 8}, {226, 0}},
}

// stream is that of the random numbers.
const stream = 0

const recordedSteps, recordedBlocks = 300, 14

// frozen returns how many blocks are frozen at a step: as in one of the recorded runs,
// which the seed draws.
func (w workload) frozen(c *dynamic.Chain, step int) int {
	run := recordedFreezes[c.Random(stream).IntN(len(recordedFreezes))]
	most, now := 0, 0
	progress := float64(step-c.Start) / float64(c.Steps-c.Start)
	for _, f := range run {
		if f.blocks == 0 && !w.Thaws {
			break
		}
		most = max(most, f.blocks)
		if progress >= float64(f.step)/recordedSteps {
			now = f.blocks
		}
	}
	share := float64(now) / recordedBlocks
	if w.Most > 0 {
		share = w.Most * float64(now) / float64(most)
	}
	return int(math.Round(share * float64(c.Count)))
}

// Costs are those of the prefix that is frozen at the step.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	frozen := w.frozen(c, step)
	costs := c.Change(func(*cost.Layer, dynamic.Block) {})
	end := 0 // behind the last layer of the last frozen block
	for i, b := range c.Blocks {
		if b.Index >= 0 && b.Index < frozen {
			end = i + 1
		}
	}
	for i := range costs.Layers[:end] {
		l := &costs.Layers[i]
		l.BackwardInput, l.BackwardWeight, l.Bytes.Gradients = 0, 0, 0
	}
	return costs
}
