package profile

import (
	"math"

	"dynmo/src/cost"
)

// scale returns cost.Table.Scale of layers that did such work: by layer and microbatch
// how many times the mean its seconds are, to a thousandth, so that files stay small.
func (e *estimator) scale(work [][]float64) [][]float64 {
	if work == nil {
		return nil
	}
	rows := make([][]float64, len(work))
	for l, row := range work {
		fixed := e.fixed(l)
		mean := meanOfFull(fixed, row)
		if row == nil || mean == 0 {
			continue
		}
		rows[l] = make([]float64, len(row))
		for m, w := range row {
			rows[l][m] = math.Round(1e3*ofFull(fixed, w)/mean) / 1e3
		}
	}
	return rows
}

// even returns what microbatches would have taken had they all been the mean one; those
// that took nothing say nothing of it.
func even(samples []cost.Stage, t cost.Table, layer int) []cost.Stage {
	if t.Scale == nil || t.Scale[layer] == nil {
		return samples
	}
	return divided(samples, func(m int) float64 { return t.Scale[layer][m] })
}
