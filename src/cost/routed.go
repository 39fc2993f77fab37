package cost

import "slices"

// Routed is the work of layers whose pieces are spread over replicas. The replica with the most
// work sets the time of such a layer.
type Routed struct {
	Name   string      // name of the counts that have the values
	Values [][][]int64 // by layer and microbatch of the step, of all replicas; nil for a layer with even work
	// Share is by layer the share φ of its seconds that depends on the work of the fullest replica.
	// If that replica has `load` times its even share, the layer takes 1 + φ·(load-1) times its
	// seconds.
	Share []float64
}

// Equal reports whether two values are equal; nil equals only nil.
func (r *Routed) Equal(other *Routed) bool {
	if r == nil || other == nil {
		return r == other
	}
	same := func(a, b [][]int64) bool { return slices.EqualFunc(a, b, slices.Equal[[]int64]) }
	return r.Name == other.Name && slices.EqualFunc(r.Values, other.Values, same) && slices.Equal(r.Share, other.Share)
}

// Loads returns, by layer and microbatch, the work of the fullest replica divided by its even
// share. A row is nil for a layer with even work. load computes that ratio from a layer's values.
func (r *Routed) Loads(load func(layer int, values []int64) float64) [][]float64 {
	rows := make([][]float64, len(r.Values))
	for l, microbatches := range r.Values {
		for _, values := range microbatches {
			rows[l] = append(rows[l], load(l, values))
		}
	}
	return rows
}

// Scale returns Table.Scale for some loads.
func (r *Routed) Scale(loads [][]float64) [][]float64 {
	rows := make([][]float64, len(loads))
	for l, row := range loads {
		for _, load := range row {
			rows[l] = append(rows[l], 1+r.Share[l]*(load-1))
		}
	}
	return rows
}

// Counts returns the sums of the values of all microbatches, ascending by layer.
func (r *Routed) Counts() (list []CountSum) {
	for l, microbatches := range r.Values {
		for _, values := range microbatches {
			list = AddCounts(list, CountSum{Name: r.Name, Layer: l, Microbatches: 1, Values: values})
		}
	}
	return list
}

// Fixed returns by layer the share of its seconds that does not depend on its work.
func (r *Routed) Fixed() []float64 {
	list := make([]float64, len(r.Share))
	for l, share := range r.Share {
		list[l] = 1 - share
	}
	return list
}
