package kernel

import (
	"math"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// The typed calls that choose experts, weights and tokens.

func (k *Calls) SquashLogits(s device.Stream, router, squashed, inp, weight tensor.Mem, n, experts int) {
	k.run(s, SquashLogits, Dims{N: n, E: experts}, router, squashed, inp, weight)
}

func (k *Calls) SquashGradient(s device.Stream, dinp, dout, inp, weight tensor.Mem, n, experts int) {
	k.run(s, SquashGradient, Dims{N: n, E: experts}, dinp, dout, inp, weight)
}

func (k *Calls) BalanceScores(s device.Stream, r Routing, router, logits tensor.Mem, n, experts int) {
	k.pending.Routing = r
	k.run(s, BalanceScores, Dims{N: n, E: experts}, router, logits)
}

func (k *Calls) RouteTokens(s device.Stream, r Routing, chosen, weights, router, readings, logits, scores tensor.Mem, n, experts, top int) {
	k.pending.Routing = r
	k.run(s, RouteTokens, Dims{N: n, K: top, E: experts}, chosen, weights, router, readings, logits, scores)
}

func (k *Calls) RouteGradient(s device.Stream, r Routing, dlogits, dweights, chosen, router tensor.Mem, n, experts, top int) {
	k.pending.Routing = r
	k.run(s, RouteGradient, Dims{N: n, K: top, E: experts}, dlogits, dweights, chosen, router)
}

func (k *Calls) PlaceTokens(s device.Stream, places, tokens, factors, ends, chosen, weights tensor.Mem, n, experts, top, first int) {
	k.pending.First = first
	k.run(s, PlaceTokens, Dims{N: n, K: top, E: experts}, places, tokens, factors, ends, chosen, weights)
}

func (k *Calls) GroupedForward(s device.Stream, out, inp, weights, ends tensor.Mem, n, c, o, experts, gap int) {
	k.run(s, GroupedForward, Dims{N: n, C: c, O: o, E: experts, Gap: gap}, out, inp, weights, ends)
}

func (k *Calls) GroupedBackwardInput(s device.Stream, dinp, dout, weights, ends tensor.Mem, n, c, o, experts, gap int) {
	k.run(s, GroupedBackwardInput, Dims{N: n, C: c, O: o, E: experts, Gap: gap}, dinp, dout, weights, ends)
}

func (k *Calls) GroupedBackwardWeight(s device.Stream, dweights, dout, inp, ends tensor.Mem, n, c, o, experts, gap int) {
	k.run(s, GroupedBackwardWeight, Dims{N: n, C: c, O: o, E: experts, Gap: gap}, dweights, dout, inp, ends)
}

func (k *Calls) MaskWeights(s device.Stream, x, mask tensor.Mem, n int) {
	k.run(s, MaskWeights, Dims{N: n}, x, mask)
}

func (k *Calls) SelectLargest(s device.Stream, kept, x, mask tensor.Mem, n int, threshold uint32, ties int) {
	k.pending.Prefix, k.pending.Ties = threshold, ties
	k.run(s, SelectLargest, Dims{N: n}, kept, x, mask)
}

func (k *Calls) MaskRanks(s device.Stream, ranks, mask tensor.Mem, n int) {
	k.run(s, MaskRanks, Dims{N: n}, ranks, mask)
}

func (k *Calls) Compact(s device.Stream, out, inp, mask, ranks tensor.Mem, n, nnz int) {
	k.run(s, Compact, Dims{N: n, NNZ: nnz}, out, inp, mask, ranks)
}

func (k *Calls) CompactWide(s device.Stream, out, inp, mask, ranks tensor.Mem, n, nnz int) {
	k.run(s, CompactWide, Dims{N: n, NNZ: nnz}, out, inp, mask, ranks)
}

func (k *Calls) CompactRows(s device.Stream, w, from CSR, mask, ranks tensor.Mem) {
	k.run(s, CompactRows, Dims{N: from.NNZ, O: w.Rows, C: w.Cols, NNZ: w.NNZ}, w.RowPtr, w.ColIdx, from.RowPtr, from.ColIdx, mask, ranks)
}

func (k *Calls) BlockScores(s device.Stream, scores, w, mask, rowPtr tensor.Mem, c, o, nnz int) {
	k.run(s, BlockScores, Dims{C: c, O: o, NNZ: nnz}, scores, w, mask, rowPtr)
}

func (k *Calls) BlockMask(s device.Stream, mask, blocks, rowPtr tensor.Mem, c, o, nnz int) {
	k.run(s, BlockMask, Dims{C: c, O: o, NNZ: nnz}, mask, blocks, rowPtr)
}

func (k *Calls) PairScores(s device.Stream, scores, w, mask tensor.Mem, n int) {
	k.run(s, PairScores, Dims{N: n}, scores, w, mask)
}

func (k *Calls) PairMask(s device.Stream, kept, w, mask, whole tensor.Mem, n int) {
	k.run(s, PairMask, Dims{N: n}, kept, w, mask, whole)
}

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
	Capacity  float64 // share of a sequence's tokens that are top-ranked, in (0, 1]
	Threshold float64 // a token is taken if sigmoid(guess) is above this probability
	One       bool    // all gates are 1 instead of sigmoid(logit)
	Router    float64 // factor of the gradients of the logits
	Predictor float64 // factor of the gradients of the guesses
}

// First returns how many tokens of a sequence are top-ranked (see Backend.TakeTokens): capacity times
// tokens, rounded up. It is at least 1 and at most tokens. capacity is a share of the tokens.
func First(capacity float64, tokens int) int {
	share := math.FMA(capacity, float64(tokens), -1e-9) // 0.1·30 is not quite 3; a GPU rounds once too
	return min(tokens, max(1, int(math.Ceil(share))))
}

func (k *Calls) Likeliest(s device.Stream, out, logits tensor.Mem, n, v int) {
	k.run(s, Likeliest, Dims{N: n, V: v}, out, logits)
}
