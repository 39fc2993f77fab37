package cost

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// varies reports whether microbatches may differ in cost.
func (s Phase) varies() bool { return s.Factors != nil || len(s.Scale) > 0 }

// factors returns how many factors a layer has, and the factor with an index: the cost of a
// microbatch divided by the layer's seconds. Without factors all are 1.
func (s Phase) factors(layer int) (n int, factor func(i int) Stage) {
	if s.Factors != nil {
		row := s.Factors[layer]
		return len(row), func(i int) Stage { return row[i] }
	}
	row := s.Scale[layer]
	return len(row), func(i int) Stage { return Stage{row[i], row[i], row[i]} }
}

// times returns a layer whose seconds are multiplied by factor.
func (l Layer) times(factor Stage) Layer {
	return l.WithSeconds(l.Stage().Times(factor))
}

// Mean returns the table with every layer's seconds replaced by their mean over the microbatches,
// and with Scale relative to that mean. Factors measured for whole stages are dropped, since they
// are not valid for layers on other stages. Mean of a mean has the same bits; rounding alone would
// make a search find another schedule.
func (s Phase) Mean() Table {
	if !s.varies() {
		return s.Table
	}
	t := s.Table
	t.Layers = append([]Layer(nil), t.Layers...)
	if s.Scale != nil {
		t.Scale = make([][]float64, len(s.Scale))
	}
	for l := range t.Layers {
		n, factor := s.factors(l)
		if n == 0 {
			continue
		}
		var mean Stage
		for i := range n {
			mean = mean.Plus(factor(i).Scale(1 / float64(n)))
		}
		if !isOne(mean.Forward) || !isOne(mean.Input) || !isOne(mean.Weight) {
			t.Layers[l] = s.Layers[l].times(mean)
		}
		if s.Scale != nil {
			t.Scale[l] = relative(s.Scale[l])
		}
	}
	return t
}

// isOne reports whether a mean is 1, up to the rounding of its sum.
func isOne(mean float64) bool { return math.Abs(mean-1) < 1e-9 }

// relative returns a row divided by its mean. It returns nil if the mean is 0 or all values are
// equal.
func relative(row []float64) []float64 {
	mean, varies := 0.0, false
	for _, x := range row {
		mean += x / float64(len(row))
		varies = varies || x != row[0]
	}
	if mean == 0 || !varies {
		return nil
	}
	if isOne(mean) {
		return row
	}
	out := make([]float64, len(row))
	for m, x := range row {
		out[m] = x / mean
	}
	return out
}

// Spread returns the standard deviation of a layer's seconds over the microbatches, relative to
// their mean; 0 if they are equal.
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

// PerMicrobatch returns the cost of every virtual stage for every microbatch, nil if all
// microbatches cost the same. A row of factors that is shorter than the number of microbatches is
// repeated.
func (s Phase) PerMicrobatch(cuts partition.Partition, m partition.Map, microbatches int) [][]Stage {
	if !s.varies() {
		return nil
	}
	t, out := s.Fitted(m.Stages), make([][]Stage, m.Virtual())
	all := make([]Stage, m.Virtual()*microbatches)
	for v := range out {
		out[v], all = all[:microbatches:microbatches], all[microbatches:]
		lo, hi := cuts.Range(v)
		for l := lo; l < hi; l++ {
			layer, at := s.Layers[l].Stage(), 0
			n, factor := s.factors(l)
			for i := range out[v] {
				if n == 0 {
					out[v][i] = out[v][i].Plus(layer)
					continue
				}
				out[v][i] = out[v][i].Plus(layer.Times(factor(at)))
				if at++; at == n {
					at = 0
				}
			}
		}
		for i := range out[v] {
			out[v][i] = t.on(m, v, out[v][i])
		}
	}
	return out
}

// Regroup returns the costs if the samples of a step are in `to` microbatches instead of `from`.
// One number must divide the other. Time and memory grow with the size of a microbatch. Dispatch
// and Fixed do not depend on samples and stay unchanged.
func (t Table) Regroup(from, to int) Table {
	if from == to {
		return t
	}
	times := float64(from) / float64(to)
	grown := func(bytes int64) int64 { return bytes * int64(from) / int64(to) }
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		layer := t.Layers[l].WithSeconds(t.Layers[l].Stage().Scale(times))
		layer.Output, layer.Rows = grown(layer.Output), grown(layer.Rows)
		layer.Bytes.Activations, layer.Bytes.Held = grown(layer.Bytes.Activations), grown(layer.Bytes.Held)
		t.Layers[l] = layer
	}
	t.Scale = regrouped(t.Scale, from, to, func(sum, x float64) float64 { return sum + x }, func(sum, share float64) float64 { return sum * share })
	return t
}

// Regroup is Regroup of the table, and also regroups the factors of microbatches.
func (s Phase) Regroup(from, to int) Phase {
	s.Table = s.Table.Regroup(from, to)
	s.Factors = regrouped(s.Factors, from, to, Stage.Plus, Stage.Scale)
	return s
}

// regrouped converts rows for `from` microbatches to rows for `to`. A joined microbatch gets the
// mean of its parts; a part gets the value of the whole. A row that is too short is repeated.
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
