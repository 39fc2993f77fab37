package cost

import "dynmo/src/partition"

// factors returns by layer and microbatch how many times its seconds a layer
// takes, nil if all are 1.
func (s Stretch) factors() [][]float64 {
	if s.Scale != nil || s.Run == nil || s.Run.Scale == nil {
		return s.Scale
	}
	rows := make([][]float64, len(s.Layers))
	for l := range rows {
		rows[l] = s.Run.Scale[s.Run.Cuts.Stage(l)]
	}
	return rows
}

// Mean returns the table with every layer's seconds at their mean over the
// microbatches.
func (s Stretch) Mean() Table {
	scale := s.factors()
	if scale == nil {
		return s.Table
	}
	t := s.Table
	t.Layers = append([]Layer(nil), t.Layers...)
	for l, row := range scale {
		if len(row) == 0 {
			continue
		}
		sum := 0.0
		for _, x := range row {
			sum += x
		}
		mean := sum / float64(len(row))
		t.Layers[l].Forward *= mean
		t.Layers[l].BackwardInput *= mean
		t.Layers[l].BackwardWeight *= mean
	}
	return t
}

// PerMicrobatch returns what every virtual stage costs for every microbatch, nil
// if all microbatches cost the same. A row of factors that is shorter than the
// microbatches begins anew.
func (s Stretch) PerMicrobatch(cuts partition.Partition, m partition.Map, microbatches int) [][]Stage {
	scale := s.factors()
	if scale == nil {
		return nil
	}
	out := make([][]Stage, m.Virtual())
	for v := range out {
		out[v] = make([]Stage, microbatches)
	}
	t := s.Table
	t.Layers = append([]Layer(nil), t.Layers...)
	for i := range microbatches {
		for l, row := range scale {
			factor := 1.0
			if len(row) > 0 {
				factor = row[i%len(row)]
			}
			t.Layers[l].Forward = factor * s.Layers[l].Forward
			t.Layers[l].BackwardInput = factor * s.Layers[l].BackwardInput
			t.Layers[l].BackwardWeight = factor * s.Layers[l].BackwardWeight
		}
		for v, c := range t.Stages(cuts, m) {
			out[v][i] = c
		}
	}
	return out
}
