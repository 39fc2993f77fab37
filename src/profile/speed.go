package profile

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"dynmo/src/partition"
	"dynmo/src/trace"
)

// rankSpeeds estimates the relative speeds of the stages' ranks. A cost belongs to a layer and a
// speed to a rank. Suppose the times of a slow rank were taken as costs of its layers. These layers
// would look slow wherever they moved next, and balancing would oscillate. A layer that has run on
// two stages gives the ratio of their speeds. The layers of a step together give the median of such
// ratios.
type rankSpeeds struct {
	Enough int // number of layers that must have moved between two stages before their ratio is used; 0 means 1

	last    []float64        // by layer: the last measured seconds
	owners  partition.Owners // the stages on which last was measured
	samples map[[2]int][]float64
}

const (
	// remembered is the number of ratios of a pair of stages that are kept, the newest ones.
	remembered = 15
	// noise is the largest difference in speed that counts as measurement noise: on shared machines
	// the costs of one layer vary by a few per cent.
	noise = 0.15
)

// Changed records that the model has changed: earlier costs of layers are no longer valid.
func (s *rankSpeeds) Changed() { s.owners = nil }

// Forget deletes the ratios of a stage whose rank has changed its speed.
func (s *rankSpeeds) Forget(stage int) {
	for pair := range s.samples {
		if pair[0] == stage || pair[1] == stage {
			delete(s.samples, pair)
		}
	}
}

// Observe takes the seconds of layers on their stages.
func (s *rankSpeeds) Observe(seconds []float64, owners partition.Owners) {
	if s.owners != nil {
		drift := s.drift(seconds, owners)
		for _, l := range s.owners.Moved(owners) {
			s.add(s.owners[l], owners[l], seconds[l]/s.last[l]/drift)
		}
	}
	s.last, s.owners = slices.Clone(seconds), slices.Clone(owners)
}

// drift returns by which factor all layers take longer than at the last measurement: the median
// over the layers that stayed, 1 if none did.
func (s *rankSpeeds) drift(seconds []float64, owners partition.Owners) float64 {
	var ratios []float64
	for l := range seconds {
		if s.owners[l] == owners[l] {
			ratios = append(ratios, seconds[l]/s.last[l])
		}
	}
	if d := trace.Median(ratios); d > 0 && !math.IsInf(d, 1) {
		return d
	}
	return 1
}

// add records that a layer took ratio times as long on stage `to` as on stage `from`.
func (s *rankSpeeds) add(from, to int, ratio float64) {
	if !(ratio > 0) || math.IsInf(ratio, 1) {
		return // one of the two times was not measurable
	}
	if from > to {
		from, to, ratio = to, from, 1/ratio
	}
	if s.samples == nil {
		s.samples = make(map[[2]int][]float64)
	}
	pair := [2]int{from, to}
	list := append(s.samples[pair], math.Log(ratio))
	s.samples[pair] = list[max(0, len(list)-remembered):]
}

// Slow returns by stage the time of its rank over that of the fastest. It returns nil while all are
// equal. The logarithms x of these factors minimise Σ_pairs (x_to - x_from - median log ratio)². If
// no layer connects two groups of stages, the fastest stage of each group has factor 1.
func (s *rankSpeeds) Slow(stages int) []float64 {
	type edge struct {
		from, to int
		ratio    float64
	}
	var edges []edge
	for from := range stages {
		for to := from + 1; to < stages; to++ {
			if list := s.samples[[2]int{from, to}]; len(list) >= max(1, s.Enough) {
				edges = append(edges, edge{from, to, trace.Median(list)})
			}
		}
	}
	if len(edges) == 0 {
		return nil
	}
	group := make([]int, stages)
	for i := range group {
		group[i] = i
	}
	for range stages { // groups: the smallest stage that can be reached
		for _, e := range edges {
			low := min(group[e.from], group[e.to])
			group[e.from], group[e.to] = low, low
		}
	}
	// Each pair has a row, and so has the smallest stage of each group. That stage has the value 0;
	// the others follow from it.
	var rows, ratios []float64
	add := func(from, to int, ratio float64) {
		row := make([]float64, stages)
		row[to] = 1
		if from != to {
			row[from] = -1
		}
		rows, ratios = append(rows, row...), append(ratios, ratio)
	}
	for _, e := range edges {
		add(e.from, e.to, e.ratio)
	}
	for i, least := range group {
		if i == least {
			add(i, i, 0)
		}
	}
	var x mat.VecDense
	if err := x.SolveVec(mat.NewDense(len(ratios), stages, rows), mat.NewVecDense(len(ratios), ratios)); err != nil {
		return nil // ratios outside the range of numbers give no speeds
	}
	slow, uneven := make([]float64, stages), false
	for i := range slow {
		fastest := x.AtVec(i)
		for j := range slow {
			if group[j] == group[i] {
				fastest = min(fastest, x.AtVec(j))
			}
		}
		slow[i] = 1
		if d := x.AtVec(i) - fastest; d > noise {
			slow[i], uneven = math.Exp(d), true
		}
	}
	if !uneven {
		return nil
	}
	return slow
}
