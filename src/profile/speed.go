package profile

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"dynmo/src/partition"
	"dynmo/src/trace"
)

// rankSpeeds finds out how fast the stages' ranks are compared with each other. A
// cost belongs to a layer and a speed to a rank: were a slow rank's times taken
// for its layers', they would look slow wherever they went next, and balancing
// would oscillate. A layer that has run on two stages tells the ratio of their
// speeds; a step's layers together, the median of such ratios.
type rankSpeeds struct {
	Enough int // layers that must have moved between two stages before their ratio is believed; 0 means 1

	last    []float64        // what layers took last
	owners  partition.Owners // where they were measured
	samples map[[2]int][]float64
}

const (
	// remembered is how many ratios of a pair of stages are kept, the newest.
	remembered = 15
	// noise is the difference in speed that is taken for measurement noise: on
	// shared machines costs of one layer vary by a few per cent.
	noise = 0.15
)

// Changed says that the model has changed: earlier costs of layers no longer hold.
func (s *rankSpeeds) Changed() { s.owners = nil }

// Forget says that a stage's rank is no longer as fast as it was.
func (s *rankSpeeds) Forget(stage int) {
	for pair := range s.samples {
		if pair[0] == stage || pair[1] == stage {
			delete(s.samples, pair)
		}
	}
}

// Observe takes what layers took on their owners.
func (s *rankSpeeds) Observe(seconds []float64, owners partition.Owners) {
	if s.owners != nil {
		drift := s.drift(seconds, owners)
		for _, l := range s.owners.Moved(owners) {
			s.add(s.owners[l], owners[l], seconds[l]/s.last[l]/drift)
		}
	}
	s.last, s.owners = slices.Clone(seconds), slices.Clone(owners)
}

// drift returns how many times longer everything takes than at the last
// measurement: the median over the layers that stayed, 1 if none did.
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

// add notes that a layer took ratio times as long on stage to as on stage from.
func (s *rankSpeeds) add(from, to int, ratio float64) {
	if !(ratio > 0) || math.IsInf(ratio, 1) {
		return // one of the two was not measurable
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

// Slow returns how many times slower each stage's rank is than the fastest, nil
// while all are alike. Log factors x minimise Σ_pairs (x_to - x_from - median log
// ratio)²; of stages that no layer connects, each group's fastest is 1.
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
	for range stages { // groups: the least stage that can be reached
		for _, e := range edges {
			low := min(group[e.from], group[e.to])
			group[e.from], group[e.to] = low, low
		}
	}
	// A row for each pair, and one for each group's least stage, which is put at 0:
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
		return nil // ratios beyond what numbers can tell say nothing of ranks
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
