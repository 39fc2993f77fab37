package kernel

import (
	"math"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

func (k *Calls) TakeTokens(s device.Stream, d Depths, taken, readings, dlogits, dguesses, logits, guesses, offsets tensor.Mem, n, b int) {
	k.pending.Depths = d
	k.run(s, TakeTokens, Dims{N: n, B: b}, taken, readings, dlogits, dguesses, logits, guesses, offsets)
}

func (k *Calls) ListTokens(s device.Stream, d Depths, rows, factors, listed, ends, taken, logits, positions, offsets tensor.Mem, n, b, places int) {
	k.pending.Depths = d
	k.run(s, ListTokens, Dims{N: n, B: b, K: places}, rows, factors, listed, ends, taken, logits, positions, offsets)
}

// Depths holds the settings of TakeTokens and ListTokens.
type Depths struct {
	Capacity          float64 // share of a sequence's tokens that are first
	Threshold         float64 // of a guess's probability, above which a token is taken
	One               bool    // gates are 1
	Router, Predictor float64 // weights of the gradients of logits and guesses
}

// First returns how many of the tokens of a sequence are first: a share of capacity rounded
// up, one at least.
func First(capacity float64, tokens int) int {
	share := math.FMA(capacity, float64(tokens), -1e-9) // 0.1·30 is not quite 3; a GPU rounds once too
	return min(tokens, max(1, int(math.Ceil(share))))
}
