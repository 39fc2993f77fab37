//go:build blas && cgo

package cpu

import (
	"slices"
	"testing"

	"dynmo/src/kernel"
	"dynmo/src/random"
)

// skewed returns a matrix whose rows go from empty to full, like its columns,
// so that the groups of its blocks have all lengths.
func skewed(rows, cols int) kernel.CSR {
	r, rowPtr, colIdx := random.Keyed(uint64(rows), uint64(cols)), []int32{0}, []int32(nil)
	for i := range rows {
		for j := range cols {
			if r.IntN(rows) < i && r.IntN(cols) <= j {
				colIdx = append(colIdx, int32(j))
			}
		}
		rowPtr = append(rowPtr, int32(len(colIdx)))
	}
	nnz := len(colIdx)
	return kernel.CSR{Rows: rows, Cols: cols, NNZ: nnz, RowPtr: mem(rowPtr), ColIdx: mem(colIdx), Values: mem(normal(1, nnz))}
}

// TestTokensAreIndependent: the bits of a token's products do not depend on
// which tokens stand beside it, whatever tiles and panels they make.
func TestTokensAreIndependent(t *testing.T) {
	eachPath(t, func(t *testing.T, k *backend) {
		for _, shape := range [][2]int{{3, 700}, {130, 257}, {1100, 97}} {
			w := skewed(shape[0], shape[1])
			bias := normal(2, w.Rows)
			products := func(inp, dout []float32, n int) result {
				out, dinp := make([]float32, n*w.Rows), make([]float32, n*w.Cols)
				k.SpMMForward(nil, mem(out), mem(inp), w, mem(bias), n)
				k.SpMMBackwardInput(nil, mem(dinp), mem(dout), w, n)
				r := result{}
				r.add("SpMMForward", out)
				r.add("SpMMBackwardInput", dinp)
				return r
			}
			const n = 300
			inp, dout := normal(3, n*w.Cols), normal(4, n*w.Rows)
			all := products(inp, dout, n)
			for from := 0; from < n; {
				to := min(n, from+1+from/2)
				for call, got := range products(inp[from*w.Cols:to*w.Cols], dout[from*w.Rows:to*w.Rows], to-from) {
					width := len(all[call]) / n
					if !slices.Equal(got, all[call][from*width:to*width]) {
						t.Errorf("%s by %dx%d: tokens %d to %d have other bits alone than among %d", call, w.Rows, w.Cols, from, to, n)
					}
				}
				from = to
			}
		}
	})
}
