package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
)

// selection returns the calls that pick elements of x (n) by magnitude, and those that
// take what a mask keeps of it: with and without a mask before, with no, some and all ties.
func (of maker) selection(n int) (all []example) {
	r := of.draw(givenSeed)
	x, mask := ties(r, n), r.bits(n, 0.7)
	threshold := ref.Magnitude(append(x, 0)[n/2])
	at := 0
	for _, xi := range x {
		if ref.Magnitude(xi) == threshold {
			at++
		}
	}
	for _, s := range []struct {
		threshold uint32
		ties      int
	}{{threshold, 0}, {threshold, 1}, {threshold, at / 2}, {threshold, at}, {0, n}, {math.MaxUint32, 0}} {
		for _, before := range [][]uint64{nil, mask} {
			c := kernel.Call{Op: kernel.SelectLargest, Dims: kernel.Dims{N: n}, Prefix: s.threshold, Ties: s.ties}
			all = append(all, of.example(c, fmt.Sprintf(",above=%x,ties=%d,mask=%t", s.threshold, s.ties, before != nil), map[string]any{"x": x, "mask": before},
				func(kernel.Call, values) (want, bound values) {
					return values{"kept": halves(largest(x, before, s.threshold, s.ties))}, nil
				}))
		}
	}
	given := map[string]any{"mask": mask}
	return append(all, of.example(kernel.Call{Op: kernel.MaskWeights, Dims: kernel.Dims{N: n}}, "", given,
		func(_ kernel.Call, x values) (want, bound values) {
			masked := slices.Clone(x["x"])
			for i := range masked {
				if !has(mask, i) {
					masked[i] = 0
				}
			}
			return values{"x": masked}, nil
		}))
}

// largest is SelectLargest by sorting places.
func largest(x []float64, mask []uint64, threshold uint32, left int) []uint64 {
	var above, at []int
	for i := range x {
		switch m := ref.Magnitude(x[i]); {
		case mask != nil && !has(mask, i):
		case m > threshold:
			above = append(above, i)
		case m == threshold:
			at = append(at, i)
		}
	}
	out := make([]uint64, (len(x)+63)/64)
	for _, i := range append(above, at[:min(left, len(at))]...) {
		out[i/64] |= 1 << (i % 64)
	}
	return out
}

// compaction returns the calls that keep of a matrix (rows, cols) what a mask keeps, with
// a probability: of a dense one, and of one of whose elements half are entries.
func (of maker) compaction(rows, cols int, probability float64) (all []example) {
	r, n := of.draw(givenSeed), rows*cols
	entries := r.bits(n, 0.5)
	fromRow, fromCol := places(rows, cols, entries, nil)
	for _, dense := range []bool{true, false} {
		given, stored := map[string]any{"from.RowPtr": nil, "from.ColIdx": nil}, n
		if !dense {
			given["from.RowPtr"], given["from.ColIdx"], stored = fromRow, fromCol, len(fromCol)
		}
		mask := r.bits(stored, probability)
		kept, ranks := []int{}, []int32{}
		for i := range stored {
			if i%64 == 0 {
				ranks = append(ranks, int32(len(kept)))
			}
			if has(mask, i) {
				kept = append(kept, i)
			}
		}
		ranks = append(ranks, int32(len(kept)))
		source, among := mask, []uint64(nil)
		if !dense {
			source, among = entries, mask
		}
		rowPtr, colIdx := places(rows, cols, source, among)
		call := func(op kernel.Op) kernel.Call {
			return kernel.Call{Op: op, Dims: kernel.Dims{N: stored, O: rows, C: cols, NNZ: len(kept)}}
		}
		note := fmt.Sprintf(",kept=%g,dense=%t", probability, dense)
		given["mask"] = mask
		wanted := func(want values) judge { return func(kernel.Call, values) (values, values) { return want, nil } }
		garbage := func(n int) []int32 { return slices.Repeat([]int32{-7}, n) }
		given["w.RowPtr"], given["w.ColIdx"] = garbage(rows+1), garbage(len(kept))
		ranked := kernel.Call{Op: kernel.MaskRanks, Dims: kernel.Dims{N: stored}}
		all = append(all, of.example(ranked, note, map[string]any{"mask": mask, "ranks": garbage(len(ranks))}, wanted(values{"ranks": widened(ranks)})))
		given["ranks"] = ranks
		all = append(all, of.example(call(kernel.CompactRows), note, given, wanted(values{"w.RowPtr": widened(rowPtr), "w.ColIdx": widened(colIdx)})))
		for _, op := range []kernel.Op{kernel.Compact, kernel.CompactWide} {
			all = append(all, of.example(call(op), note, given, func(_ kernel.Call, x values) (want, bound values) {
				out := make([]float64, len(kept))
				for e, i := range kept {
					out[e] = x["inp"][i]
				}
				return values{"out": out}, nil
			}))
		}
	}
	return all
}

// places returns the entries of a matrix, whose bits are set in all, in compressed rows: of
// those whose own bit in mask is set, or all.
func places(rows, cols int, all, mask []uint64) (rowPtr, colIdx []int32) {
	rowPtr, entry := []int32{0}, 0
	for i := range rows * cols {
		if has(all, i) {
			if mask == nil || has(mask, entry) {
				colIdx = append(colIdx, int32(i%cols))
			}
			entry++
		}
		if i%cols == cols-1 {
			rowPtr = append(rowPtr, int32(len(colIdx)))
		}
	}
	return rowPtr, colIdx
}

// structured returns the calls on the blocks of a matrix of (o, c) blocks, and on n groups of four.
// The matrix is dense, or in compressed rows with some of the blocks.
func (of maker) structured(o, c, n int) (all []example) {
	r := of.draw(givenSeed)
	present := r.bits(o*c, 0.6)
	rowPtr, places := []int32{0}, []int(nil) // of the dense matrix that entries are at
	for i := range o * kernel.Block * c * kernel.Block {
		row, col := i/(c*kernel.Block), i%(c*kernel.Block)
		if has(present, row/kernel.Block*c+col/kernel.Block) {
			places = append(places, row/kernel.Block*c+col/kernel.Block)
		}
		if col == c*kernel.Block-1 {
			rowPtr = append(rowPtr, int32(len(places)))
		}
	}
	number, stored := make([]int, o*c), 0 // of each block among those in rows
	for block := range number {
		if number[block] = stored; has(present, block) {
			stored++
		}
	}
	of32 := kernel.Block * kernel.Block
	for _, dense := range []bool{true, false} {
		blocks, blockOf := stored, func(i int) int { return number[places[i]] }
		if dense {
			blocks, blockOf = o*c, func(i int) int { return i/(c*kernel.Block)/kernel.Block*c + i%(c*kernel.Block)/kernel.Block }
		}
		d := kernel.Dims{O: o, C: c, NNZ: blocks}
		chosen, live := r.bits(blocks, 0.6), r.bits(blocks, 0.5)
		spread, few := make([]uint64, blocks*of32/64), r.bits(blocks*of32, 0.3) // in some blocks a few, in others none
		for i := range blocks * of32 {
			if has(chosen, blockOf(i)) {
				spread[i/64] |= 1 << (i % 64)
			}
			if !has(live, blockOf(i)) {
				few[i/64] &^= 1 << (i % 64)
			}
		}
		for _, mask := range [][]uint64{nil, few} {
			given, note := map[string]any{"mask": mask, "rowPtr": rowPtr}, fmt.Sprintf(",dense=%t,mask=%t", dense, mask != nil)
			if dense {
				given["rowPtr"] = nil
			}
			all = append(all, of.example(kernel.Call{Op: kernel.BlockScores, Dims: d}, note, given,
				func(_ kernel.Call, x values) (want, bound values) {
					scores, some := make([]float64, blocks), make([]bool, blocks)
					for i, w := range x["w"] {
						scores[blockOf(i)] += w * w
						some[blockOf(i)] = some[blockOf(i)] || mask == nil || has(mask, i)
					}
					for block := range scores {
						if !some[block] {
							scores[block] = 0
						}
					}
					return values{"scores": scores}, values{"scores": scores}
				}))
			if mask != nil {
				continue
			}
			given["blocks"], given["mask"] = chosen, make([]uint64, blocks*of32/64)
			all = append(all, of.example(kernel.Call{Op: kernel.BlockMask, Dims: d}, note, given,
				func(kernel.Call, values) (want, bound values) { return values{"mask": halves(spread)}, nil }))
		}
	}
	return append(all, of.pairs(n)...)
}

// pairs returns the calls on n groups of four. Most groups have ties; in some groups two elements
// are pruned.
func (of maker) pairs(n int) (all []example) {
	r := of.draw(givenSeed)
	w, whole, pruned := r.normal(4*n), r.bits(n, 0.5), r.bits(4*n, 1)
	for i := range w {
		if r.IntN(2) == 0 {
			w[i] = float64(r.IntN(5)-2) / 4
		}
	}
	for u := range n {
		if has(whole, u) || r.IntN(2) == 0 {
			continue
		}
		for _, j := range r.Perm(4)[:2] {
			pruned[(4*u+j)/64] &^= 1 << ((4*u + j) % 64)
		}
	}
	for _, mask := range [][]uint64{nil, pruned} {
		given, note := map[string]any{"w": w, "mask": mask, "whole": whole}, fmt.Sprintf(",mask=%t", mask != nil)
		kept, scores := make([]uint64, (4*n+63)/64), make([]float64, n)
		ref.PairMask(kept, w, mask, whole)
		ref.PairScores(scores, w, mask)
		all = append(all, of.example(kernel.Call{Op: kernel.PairScores, Dims: kernel.Dims{N: n}}, note, given,
			func(kernel.Call, values) (want, bound values) {
				return values{"scores": scores}, values{"scores": scores}
			}),
			of.example(kernel.Call{Op: kernel.PairMask, Dims: kernel.Dims{N: n}}, note, given,
				func(kernel.Call, values) (want, bound values) { return values{"kept": halves(kept)}, nil }))
	}
	return all
}

func has(mask []uint64, i int) bool { return mask[i/64]>>(i%64)&1 == 1 }

// halves returns the words of a mask as an operand's values are.
func halves(mask []uint64) []float64 {
	var x []float64
	for _, word := range mask {
		x = append(x, float64(uint32(word)), float64(word>>32))
	}
	return x
}
