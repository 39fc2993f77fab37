package ref

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/kernel"
)

// TakeTokens decides which tokens of sequences a routed block takes, as kernel.Backend says.
// Without guesses there are no gradients of them either.
func TakeTokens[F Float](taken []int32, readings []float64, dlogits, dguesses, logits, guesses []F, offsets []int32, d kernel.Depths) {
	order := make([]int, len(logits))
	for i := range order {
		taken[i], order[i] = 0, i // 1 of those that are first, until they are looked at
	}
	for s, lo := range offsets[:len(offsets)-1] {
		sequence := order[lo:offsets[s+1]]
		slices.SortFunc(sequence, func(i, j int) int { return cmp.Or(cmp.Compare(logits[j], logits[i]), cmp.Compare(i, j)) })
		for _, i := range sequence[:kernel.First(d.Capacity, len(sequence))] {
			taken[i] = 1
		}
	}
	all, right, losses := 0, 0, [2]float64{}
	for i, z := range logits {
		label := float64(taken[i])
		p, loss := binaryCrossEntropy(float64(z), label)
		losses[0] += loss
		dlogits[i] = F(d.Router * (p - label))
		predicted := p > 0.5
		if guesses != nil {
			q, loss := binaryCrossEntropy(float64(guesses[i]), label)
			losses[1] += loss
			dguesses[i] = F(d.Predictor * (q - label))
			predicted = q > d.Threshold
			taken[i] = one(predicted)
		}
		if predicted == (label > 0) {
			right++
		}
		all += int(taken[i])
	}
	copy(readings, []float64{float64(len(logits)), float64(all), float64(right), 1000 * losses[0], 1000 * losses[1]})
}

// ListTokens lists the tokens that are taken, as kernel.Backend says.
func ListTokens[F, W Float](rows []int32, factors []W, listed, ends, taken []int32, logits []F, positions, offsets []int32, d kernel.Depths) {
	clear(rows)
	clear(factors)
	clear(listed)
	k, at := len(rows), int32(0)
	for s, lo := range offsets[:len(offsets)-1] {
		ends[s] = at
		for i := lo; i < offsets[s+1]; i++ {
			if taken[i] == 0 {
				continue
			}
			gate, _ := binaryCrossEntropy(float64(logits[i]), 1)
			if d.One {
				gate = 1
			}
			rows[at], factors[at], factors[k+int(at)], listed[at] = i, W(gate), W(1-gate), positions[i]
			at++
		}
	}
	ends[len(ends)-1] = at
}

// binaryCrossEntropy returns sigmoid(z), and the binary cross-entropy of it against a label, 0 or 1.
func binaryCrossEntropy(z, label float64) (p, loss float64) {
	e := math.Exp(-math.Abs(z))
	p = 1 / (1 + e)
	if z < 0 {
		p = e / (1 + e)
	}
	return p, max(z, 0) - z*label + math.Log1p(e)
}

// one returns 1 of true, 0 of false.
func one(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
