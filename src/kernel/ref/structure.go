package ref

import (
	"slices"

	"dynmo/src/kernel"
)

// eachBlock calls visit for every element of every block of 32 x 32 of a matrix
// (32·o, 32·c): of those in compressed rows, or of all where rowPtr is nil.
func eachBlock(rowPtr []int32, c, o int, visit func(block, at int)) {
	start := func(row int) int {
		if rowPtr == nil {
			return row * c * kernel.Block
		}
		return int(rowPtr[row])
	}
	block := 0
	for r := range o {
		first := r * kernel.Block
		for j := range (start(first+1) - start(first)) / kernel.Block {
			for i := range kernel.Block * kernel.Block {
				visit(block, start(first+i/kernel.Block)+j*kernel.Block+i%kernel.Block)
			}
			block++
		}
	}
}

// blockScores sets scores to the sums of squares of w over its blocks, in the order of eachBlock. A
// block without a bit in mask scores 0, any other at least kernel.Lowest. A nil mask has all bits.
func blockScores[F Float](scores, w []F, mask []uint64, rowPtr []int32, c, o int) {
	clear(scores)
	live := make([]bool, len(scores))
	eachBlock(rowPtr, c, o, func(block, at int) {
		scores[block] += w[at] * w[at]
		live[block] = live[block] || mask == nil || kept(mask, at)
	})
	for block, sum := range scores {
		scores[block] = score(sum, live[block])
	}
}

// score returns 0 unless the unit is live, else its score.
func score[F Float](sum F, live bool) F {
	if !live {
		return 0
	}
	return max(sum, kernel.Lowest)
}

// blockMask sets mask, a bit for each element, to those of the blocks whose bit in blocks
// is 1.
func blockMask(mask, blocks []uint64, rowPtr []int32, c, o int) {
	clear(mask)
	eachBlock(rowPtr, c, o, func(block, at int) {
		if kept(blocks, block) {
			keep(mask, at)
		}
	})
}

// PairScores sets scores to the sum of the two smallest magnitudes of each four elements of w. If
// one of the four has no bit in mask the score is 0, otherwise at least kernel.Lowest.
func PairScores[F Float](scores, w []F, mask []uint64) {
	for u := range scores {
		var four [4]F
		live := true
		for j := range four {
			four[j] = max(w[4*u+j], -w[4*u+j])
			live = live && (mask == nil || kept(mask, 4*u+j))
		}
		slices.Sort(four[:])
		scores[u] = score(four[0]+four[1], live)
	}
}

// PairMask sets in out all bits of every four elements of w whose bit in whole is 1, else
// those of two: first those that mask has, then the larger magnitudes, then the lower
// indices.
func PairMask[F Float](out []uint64, w []F, mask, whole []uint64) {
	clear(out)
	for u := range len(w) / 4 {
		for j := range 4 {
			better := 0
			for other := range 4 {
				if before(w, mask, 4*u+other, 4*u+j) {
					better++
				}
			}
			if better < 2 || kept(whole, u) {
				keep(out, 4*u+j)
			}
		}
	}
}

// before reports whether element i comes before element j in the order of PairMask.
func before[F Float](w []F, mask []uint64, i, j int) bool {
	if mask != nil && kept(mask, i) != kept(mask, j) {
		return kept(mask, i)
	}
	if a, b := Magnitude(w[i]), Magnitude(w[j]); a != b {
		return a > b
	}
	return i < j
}
