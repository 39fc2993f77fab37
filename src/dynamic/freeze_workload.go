package dynamic

import (
	"math"

	"dynmo/src/cost"
)

// FreezeWorkload freezes blocks from the front, with all layers before them. The
// steps between two vary by half, and spread the last over the run. A frozen
// layer keeps its forward. Its w goes, and so does its i, since with everything
// upstream frozen nothing needs it, and its gradients are neither kept nor summed
// over replicas. Optimizer state stays: layers may thaw. The first layer that
// trains keeps its i, whose parts its own w needs.
type FreezeWorkload struct {
	// Final is the share of the blocks that are frozen by the end. Egeria (Wang et al.
	// 2022) freezes from the front, never all.
	Final float64
}

// Costs are those of a longer frozen prefix the later the step.
func (w FreezeWorkload) Costs(c *Chain, step int) Costs {
	last := int(math.Floor(w.Final * float64(c.count)))
	rnd := c.random(streamFreeze)
	frozen, at := 0, float64(c.Start)
	for frozen < last {
		at += (0.5 + rnd.Float64()) * float64(c.Steps-c.Start) / float64(last+1)
		if at > float64(step) {
			break
		}
		frozen++
	}
	costs := c.change(func(*cost.Layer, block) {})
	end := -1 // the last layer of the last frozen block
	for i, b := range c.blocks {
		if b.index >= 0 && b.index < frozen {
			end = i
		}
	}
	for i := range costs.Layers[:end+1] {
		l := &costs.Layers[i]
		l.BackwardInput, l.BackwardWeight, l.Bytes.Gradients = 0, 0, 0
	}
	return costs
}
