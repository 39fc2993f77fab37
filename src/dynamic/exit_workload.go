package dynamic

import "dynmo/src/cost"

// ExitWorkload lets some tokens leave behind every block from a depth on (CALM,
// Schuster et al. 2022), their numbers in proportion to weights drawn from
// [0.5, 1.5) once for each exit. Together they are a share of the tokens that
// grows from 0 at the start to Final in the last step. Later blocks compute, keep
// and send on what is left. The head is as dear as before: a token's loss is
// computed at its exit or at the end.
type ExitWorkload struct {
	From  float64 // share of the blocks before the first exit
	Final float64 // share of the tokens that have left before the last block by the end
}

// Costs fall from change to change.
func (w ExitWorkload) Costs(c *Chain, step int) Costs {
	progress := w.Final
	if last := c.Steps - 1 - c.Start; last > 0 {
		progress *= float64(step-c.Start) / float64(last)
	}
	rnd := c.random(streamExit)
	gone := make([]float64, c.count+1) // before each block
	for b := range c.count {
		weight := 0.5 + rnd.Float64()
		if float64(b) < w.From*float64(c.count) || b == c.count-1 {
			weight = 0 // no exit, or the head itself
		}
		gone[b+1] = gone[b] + weight
	}
	left := func(b int) float64 {
		if gone[c.count] == 0 {
			return 1 // too few blocks for an exit
		}
		return 1 - progress*gone[b]/gone[c.count]
	}
	return c.change(func(l *cost.Layer, b block) {
		tokens, next := left(b.index), b.index
		if b.last {
			next++
		}
		slower(l, tokens)
		share(&l.Bytes.Activations, tokens)
		share(&l.Bytes.Held, tokens)
		share(&l.Output, left(next))
	})
}
