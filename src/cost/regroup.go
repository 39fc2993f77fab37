package cost

import "slices"

// Regroup returns what layers cost where the samples of a step are in to microbatches, not
// in from: one number divides the other. Microbatches that are larger take as much longer
// and as much more memory. What no sample accounts for, Dispatch and Fixed, stays as it is.
func (t Table) Regroup(from, to int) Table {
	if from == to {
		return t
	}
	times := float64(from) / float64(to)
	grown := func(bytes int64) int64 { return bytes * int64(from) / int64(to) }
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		layer := t.Layers[l].WithSeconds(t.Layers[l].Stage().Scale(times))
		layer.Output = grown(layer.Output)
		layer.Bytes.Activations, layer.Bytes.Held = grown(layer.Bytes.Activations), grown(layer.Bytes.Held)
		t.Layers[l] = layer
	}
	t.Scale = regrouped(t.Scale, from, to, func(sum, x float64) float64 { return sum + x }, func(sum, share float64) float64 { return sum * share })
	return t
}

// Regroup is that of the table, with the factors of microbatches.
func (s Phase) Regroup(from, to int) Phase {
	s.Table = s.Table.Regroup(from, to)
	s.Factors = regrouped(s.Factors, from, to, Stage.Plus, Stage.Scale)
	return s
}

// regrouped returns the rows of to microbatches where those of from are known: each has the
// mean of the ones that it is made of, or what the one has that it is part of. A row that
// is shorter begins anew.
func regrouped[T any](rows [][]T, from, to int, plus func(T, T) T, scale func(T, float64) T) [][]T {
	if from == to || rows == nil {
		return rows
	}
	joined := max(1, from/to)
	out := make([][]T, len(rows))
	for l, row := range rows {
		if len(row) == 0 {
			continue
		}
		out[l] = make([]T, to)
		for m := range out[l] {
			for i := range joined {
				out[l][m] = plus(out[l][m], row[(m*from/to+i)%len(row)])
			}
			out[l][m] = scale(out[l][m], 1/float64(joined))
		}
	}
	return out
}
