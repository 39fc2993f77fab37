package verdict

import (
	"slices"

	"dynmo/src/cost"
	"dynmo/src/trace"
)

// agreeOnSpeeds gives all segments of runs on the same ranks the same slowness of stages. It scales
// the layers' costs so that their measured seconds stay the same. A run learns which ranks are slow
// only when layers move, and may be wrong for a while.
func agreeOnSpeeds(lists [][]segment) {
	slow := medianSlowness(lists)
	for _, list := range lists {
		for _, s := range list {
			c, stages := s.costs, s.layout.Stages()
			before, after := c.Fitted(stages).Slow, cost.Table{Slow: slow}.Fitted(stages).Slow
			c.Layers, c.Slow = slices.Clone(c.Layers), slow
			for l, stage := range s.layout.Owners() {
				factor := 1.0
				if before != nil {
					factor = before[stage]
				}
				if after != nil {
					factor /= after[stage]
				}
				c.Layers[l] = c.Layers[l].WithSeconds(c.Layers[l].Stage().Scale(factor))
			}
		}
	}
}

// medianSlowness returns how many times slower than the fastest every stage is. It is the
// median over all steps after layers first moved: nothing is known before. It is nil if no
// stage is slow.
func medianSlowness(lists [][]segment) []float64 {
	stages := lists[0][0].layout.Stages()
	seen := make([][]float64, stages)
	for _, list := range lists {
		moved := firstMove(list)
		if moved < 0 {
			continue
		}
		for _, s := range list[moved:] {
			slow := s.costs.Fitted(stages).Slow
			if slow == nil {
				slow = slices.Repeat([]float64{1}, stages)
			}
			for stage, x := range slow {
				seen[stage] = append(seen[stage], slices.Repeat([]float64{x}, s.steps)...)
			}
		}
	}
	slow := make([]float64, stages)
	for stage, list := range seen {
		slow[stage] = max(1, trace.Median(list))
	}
	if slices.Max(slow) == 1 {
		return nil
	}
	return slow
}
