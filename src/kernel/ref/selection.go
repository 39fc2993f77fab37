package ref

import (
	"math"
	"math/bits"
)

// mask sets to 0 the elements of x whose bit is 0 in mask: bit i%64 of word i/64.
func mask[F Float](x []F, mask []uint64) {
	for i := range x {
		if !kept(mask, i) {
			x[i] = 0
		}
	}
}

// magnitudeHistogram is one pass of a radix selection by magnitude, the bits of float32(|x|) as
// uint32. An element counts if its first fixed bits (0, 8, 16 or 24) are prefix and its bit in mask
// is 1. It adds to hist (256) the counts by the 8 bits that follow. A nil mask counts all.
func magnitudeHistogram[F Float](hist []int64, x []F, mask []uint64, prefix uint32, fixed int) {
	for i, xi := range x {
		bits := Magnitude(xi)
		if bits>>(32-fixed) == prefix && (mask == nil || kept(mask, i)) {
			hist[bits>>(24-fixed)&0xff]++
		}
	}
}

// Magnitude returns the bits of float32(|x|), which order as |x| does.
func Magnitude[F Float](x F) uint32 { return math.Float32bits(float32(math.Abs(float64(x)))) }

// selectLargest sets in out the bits of the elements of x whose magnitude is above
// threshold, and of those at it the first `ties`. Elements whose bit in mask is 0 do
// not count; a nil mask keeps all.
func selectLargest[F Float](out []uint64, x []F, mask []uint64, threshold uint32, ties int) {
	clear(out)
	for i, xi := range x {
		if mask != nil && !kept(mask, i) {
			continue
		}
		m := Magnitude(xi)
		if m == threshold {
			ties--
		}
		if m > threshold || m == threshold && ties >= 0 {
			keep(out, i)
		}
	}
}

func keep(mask []uint64, i int) { mask[i/64] |= 1 << (i % 64) }

func kept(mask []uint64, i int) bool { return mask[i/64]>>(i%64)&1 == 1 }

// maskRanks sets ranks to the number of 1 bits of mask before each of its words, and
// before bit n, where it ends.
func maskRanks(ranks []int32, mask []uint64, n int) {
	total := int32(0)
	for w, word := range mask {
		ranks[w] = total
		if rest := n - 64*w; rest < 64 {
			word &= 1<<rest - 1
		}
		total += int32(bits.OnesCount64(word))
	}
	ranks[len(mask)] = total
}

// compact sets out to the elements of inp whose bit in mask is 1, in order.
func compact[F Float](out, inp []F, mask []uint64) {
	e := 0
	for i, x := range inp {
		if kept(mask, i) {
			out[e] = x
			e++
		}
	}
}

// compactRows sets rowPtr and colIdx to the places of the entries whose bit in mask is 1. The
// entries are those of a matrix in compressed rows, fromRow and fromCol. Where these are nil they
// are all elements of a dense matrix of c columns.
func compactRows(rowPtr, colIdx, fromRow, fromCol []int32, mask []uint64, c int) {
	e, i := int32(0), 0
	rowPtr[0] = 0
	for r := range len(rowPtr) - 1 {
		end := (r + 1) * c
		if fromRow != nil {
			end = int(fromRow[r+1])
		}
		for ; i < end; i++ {
			if !kept(mask, i) {
				continue
			}
			colIdx[e] = int32(i - r*c)
			if fromCol != nil {
				colIdx[e] = fromCol[i]
			}
			e++
		}
		rowPtr[r+1] = e
	}
}
