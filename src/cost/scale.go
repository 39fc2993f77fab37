package cost

import "dynmo/src/partition"

// factors returns by layer and microbatch how many times its seconds a layer
// takes, nil if all are 1.
func (s Phase) factors() [][]Stage {
	if len(s.Scale) == 0 {
		return s.Factors
	}
	rows := make([][]Stage, len(s.Layers))
	for l := range rows {
		for _, x := range s.Scale[l] {
			rows[l] = append(rows[l], Stage{x, x, x})
		}
	}
	return rows
}

// times returns a layer that takes so many times its seconds.
func (l Layer) times(factor Stage) Layer {
	return l.With(l.Stage().Times(factor))
}

// Mean returns the table with every layer's seconds at their mean over the
// microbatches.
func (s Phase) Mean() Table {
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
		var mean Stage
		for _, x := range row {
			mean = mean.Plus(x.Scale(1 / float64(len(row))))
		}
		t.Layers[l] = s.Layers[l].times(mean)
	}
	return t
}

// PerMicrobatch returns what every virtual stage costs for every microbatch, nil
// if all microbatches cost the same. A row of factors that is shorter than the
// microbatches begins anew.
func (s Phase) PerMicrobatch(cuts partition.Partition, m partition.Map, microbatches int) [][]Stage {
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
			if len(row) > 0 {
				t.Layers[l] = s.Layers[l].times(row[i%len(row)])
			}
		}
		for v, c := range t.Stages(cuts, m) {
			out[v][i] = c
		}
	}
	return out
}
