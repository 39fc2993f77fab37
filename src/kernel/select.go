package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// The calls of pruning, typed as in Calls.

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
