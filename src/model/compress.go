package model

import (
	"fmt"
	"math/bits"

	"dynmo/src/tensor"
)

// Keep is the kept set of one parameter: a bit for each stored value of W, bit
// i%64 of word i/64. A pruned entry of a masked matrix has no bit.
type Keep []uint64

// Has reports whether stored value i is kept.
func (k Keep) Has(i int) bool { return k[i/64]>>(i%64)&1 == 1 }

// Set keeps stored value i.
func (k Keep) Set(i int) { k[i/64] |= 1 << (i % 64) }

// Count returns how many values are kept.
func (k Keep) Count() int {
	n := 0
	for _, w := range k {
		n += bits.OnesCount64(w)
	}
	return n
}

// NewKeep returns an empty set for a parameter.
func NewKeep(p *Param) Keep { return make(Keep, (p.Stored()+63)/64) }

// Compress drops what is not kept: weights and moments of every parameter for
// which keep has an entry, by index in Params. A matrix is stored as CSR from
// sparsity csrFrom on (and stays CSR), as a masked dense one below it. It is
// called between steps: gradients are lost.
func (l *Layer) Compress(keep map[int]Keep, csrFrom float64) error {
	h := l.Header()
	for i, k := range keep {
		p := l.params[i]
		h.NNZ[i] = k.Count()
		h.Formats[i] = Masked
		if p.Format == CSR || 1-float64(h.NNZ[i])/float64(p.Rows*p.Cols) >= csrFrom {
			h.Formats[i] = CSR
		}
	}
	next, err := EmptyLayer(l.config, h, l.device, l.dtype)
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	for i, p := range l.params {
		if l.dtype == tensor.F64 {
			transfer[float64](next.params[i], p, keep[i])
		} else {
			transfer[float32](next.params[i], p, keep[i])
		}
	}
	old := *l
	*l = *next
	old.Free()
	return nil
}

// transfer copies the kept values of src, and their moments and structure, to
// dst. A nil keep keeps everything in its form.
func transfer[F float32 | float64](dst, src *Param, keep Keep) {
	pairs := [][2]tensor.Mem{{dst.W, src.W}, {dst.M, src.M}, {dst.V, src.V}}
	if keep == nil {
		pairs = append(pairs, [2]tensor.Mem{dst.Mask, src.Mask}, [2]tensor.Mem{dst.RowPtr, src.RowPtr}, [2]tensor.Mem{dst.ColIdx, src.ColIdx})
		for _, p := range pairs {
			copy(tensor.Of[byte](p[0]), tensor.Of[byte](p[1]))
		}
		return
	}
	if dst.Format == Masked {
		copy(tensor.Of[uint64](dst.Mask), keep)
	}
	if dst.Format == CSR {
		structure(dst, src, keep)
	}
	for _, p := range pairs {
		to, from, n := tensor.Of[F](p[0]), tensor.Of[F](p[1]), 0
		for i := range from {
			if !keep.Has(i) {
				continue
			}
			if dst.Format == Masked {
				n = i
			}
			to[n] = from[i]
			n++
		}
	}
}

// structure writes the row pointers and column indices of what is kept.
func structure(dst, src *Param, keep Keep) {
	rows, cols := tensor.Of[int32](dst.RowPtr), tensor.Of[int32](dst.ColIdx)
	oldRows, oldCols := tensor.Of[int32](src.RowPtr), tensor.Of[int32](src.ColIdx)
	n := int32(0)
	for r := range src.Rows {
		lo, hi := r*src.Cols, (r+1)*src.Cols
		if src.Format == CSR {
			lo, hi = int(oldRows[r]), int(oldRows[r+1])
		}
		for i := lo; i < hi; i++ {
			if !keep.Has(i) {
				continue
			}
			cols[n] = int32(i - lo)
			if src.Format == CSR {
				cols[n] = oldCols[i]
			}
			n++
		}
		rows[r+1] = n
	}
}
