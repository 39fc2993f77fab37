package ref

import "math/bits"

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

// compactRows sets rowPtr and colIdx to the places of the entries whose bit in mask is 1,
// of a matrix with fromRow and fromCol, or, where these are nil, of all elements of a
// dense one of c columns.
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
