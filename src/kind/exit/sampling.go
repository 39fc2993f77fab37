package exit

import (
	"math"
	"slices"
)

// Surety returns the confidence of a token whose text is sampled: of its states in front of the
// last block and behind it, of the classifier's logits, or of what logits returns, the exit's.
func (e Exits) Surety(front, behind, verdict []float32, logits func() []float32) float64 {
	switch e.Confidence {
	case classifier:
		return 1 / (1 + math.Exp(float64(verdict[0]-verdict[1])))
	case saturation:
		var cosine [1]float64
		cosines(cosine[:], slices.Concat(behind, front), func(v float32) float64 { return float64(v) })
		return cosine[0]
	}
	list := logits()
	largest, sum := float64(slices.Max(list)), 0.0
	for _, v := range list {
		sum += math.Exp(float64(v) - largest)
	}
	return 1 / sum
}

// Notes says how training treated tokens that left.
func (e Exits) Notes() []string {
	if e.Weighted || e.Propagate {
		return nil
	}
	return []string{"exit.propagate = false: in training tokens that left were no keys in later blocks, here these make keys and values of their states"}
}
