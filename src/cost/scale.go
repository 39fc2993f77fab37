package cost

import (
	"math"

	"dynmo/src/partition"
)

// factors returns by layer and microbatch how many times its seconds a layer
// takes, nil if all are 1.
func (s Phase) factors() [][]Stage {
	if s.Factors != nil || len(s.Scale) == 0 {
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
	return l.WithSeconds(l.Stage().Times(factor))
}

// Mean returns the table with every layer's seconds at their mean over the
// microbatches, and Scale relative to that. What was measured of the microbatches of
// whole stages says nothing of layers elsewhere, and is left out.
func (s Phase) Mean() Table {
	scale := s.factors()
	if scale == nil {
		return s.Table
	}
	t := s.Table
	t.Layers = append([]Layer(nil), t.Layers...)
	if s.Scale != nil {
		t.Scale = make([][]float64, len(s.Scale))
	}
	for l, row := range scale {
		if len(row) == 0 {
			continue
		}
		var mean Stage
		for _, x := range row {
			mean = mean.Plus(x.Scale(1 / float64(len(row))))
		}
		t.Layers[l] = s.Layers[l].times(mean)
		if s.Scale != nil {
			t.Scale[l] = relative(s.Scale[l])
		}
	}
	return t
}

// relative returns a row in multiples of its mean, nil where that is 0 or all are the same.
func relative(row []float64) []float64 {
	mean, varies := 0.0, false
	for _, x := range row {
		mean += x / float64(len(row))
		varies = varies || x != row[0]
	}
	if mean == 0 || !varies {
		return nil
	}
	out := make([]float64, len(row))
	for m, x := range row {
		out[m] = x / mean
	}
	return out
}

// Spread returns the standard deviation over the microbatches of a layer's seconds,
// relative to their mean; 0 where they are the same.
func (t Table) Spread(layer int) float64 {
	if len(t.Scale) == 0 || len(t.Scale[layer]) == 0 {
		return 0
	}
	sum, squares, n := 0.0, 0.0, float64(len(t.Scale[layer]))
	for _, x := range t.Scale[layer] {
		sum, squares = sum+x, squares+x*x
	}
	if sum == 0 {
		return 0
	}
	return math.Sqrt(max(0, squares*n/(sum*sum)-1))
}

// PerMicrobatch returns what every virtual stage costs for every microbatch, nil
// if all microbatches cost the same. A row of factors that is shorter than the
// microbatches begins anew.
func (s Phase) PerMicrobatch(cuts partition.Partition, m partition.Map, microbatches int) [][]Stage {
	scale := s.factors()
	if scale == nil {
		return nil
	}
	t, out := s.Fitted(m.Stages), make([][]Stage, m.Virtual())
	for v := range out {
		out[v] = make([]Stage, microbatches)
		lo, hi := cuts.Range(v)
		for l := lo; l < hi; l++ {
			layer, row := s.Layers[l].Stage(), scale[l]
			for i := range out[v] {
				if len(row) > 0 {
					out[v][i] = out[v][i].Plus(layer.Times(row[i%len(row)]))
				} else {
					out[v][i] = out[v][i].Plus(layer)
				}
			}
		}
		for i := range out[v] {
			out[v][i] = t.on(m, v, out[v][i])
		}
	}
	return out
}
