package kerneltest

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// pattern is a random sparse matrix, in compressed rows and as a dense matrix
// with zeros in the places left out.
type pattern struct {
	rows, cols     int
	rowPtr, colIdx []int32
	values         floats
	dense          []float64
	sparsity       float64
}

// newPattern leaves out each entry with probability sparsity. Every fifth row
// is empty unless all entries are kept.
func (of maker) newPattern(rows, cols int, sparsity float64) pattern {
	r := of.draw()
	w := pattern{rows: rows, cols: cols, rowPtr: []int32{0}, dense: make([]float64, rows*cols), sparsity: sparsity}
	for i := range rows {
		for j := range cols {
			if sparsity > 0 && (i%5 == 1 || r.Float64() < sparsity) {
				continue
			}
			w.colIdx = append(w.colIdx, int32(j))
			w.values = append(w.values, r.normal(1)[0])
			w.dense[i*cols+j] = w.values[len(w.values)-1]
		}
		w.rowPtr = append(w.rowPtr, int32(len(w.colIdx)))
	}
	return w
}

func (w pattern) String() string { return fmt.Sprintf("%dx%d,sparsity=%g", w.rows, w.cols, w.sparsity) }

// gather returns the elements of a dense matrix at the kept entries.
func (w pattern) gather(dense []float64) []float64 {
	kept := make([]float64, 0, len(w.colIdx))
	for i := range w.rows {
		for _, j := range w.colIdx[w.rowPtr[i]:w.rowPtr[i+1]] {
			kept = append(kept, dense[i*w.cols+int(j)])
		}
	}
	return kept
}

// csr describes w with its operands m: row offsets, columns, values.
func (w pattern) csr(m []tensor.Mem) kernel.CSR {
	return kernel.CSR{Rows: w.rows, Cols: w.cols, NNZ: len(w.colIdx), RowPtr: m[0], ColIdx: m[1], Values: m[2]}
}

// What the sparse calls should give is what the dense ones give on w.dense.

func (of maker) spmmForward(n int, w pattern, withBias bool) call {
	r := of.draw()
	inp, bias := r.normal(n*w.cols), r.normal(w.rows)
	if !withBias {
		bias = nil
	}
	out, bound := make([]float64, n*w.rows), make([]float64, n*w.rows)
	ref.MatmulForward(out, inp, w.dense, bias, n, w.cols, w.rows)
	ref.MatmulForward(bound, abs(inp), abs(w.dense), abs(bias), n, w.cols, w.rows)
	return call{
		fmt.Sprintf("SpMMForward/n=%d,w=%v,bias=%t", n, w, withBias),
		[]operand{set(out, bound), in(inp), in(w.rowPtr), in(w.colIdx), in(w.values), in(bias)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.SpMMForward(s, m[0], m[1], w.csr(m[2:]), m[5], n)
		},
	}
}

func (of maker) spmmBackwardInput(n int, w pattern) call {
	r := of.draw()
	dout := r.normal(n * w.rows)
	dinp, bound := make([]float64, n*w.cols), make([]float64, n*w.cols)
	ref.MatmulBackwardInput(dinp, dout, w.dense, n, w.cols, w.rows)
	ref.MatmulBackwardInput(bound, abs(dout), abs(w.dense), n, w.cols, w.rows)
	return call{
		fmt.Sprintf("SpMMBackwardInput/n=%d,w=%v", n, w),
		[]operand{set(dinp, bound), in(dout), in(w.rowPtr), in(w.colIdx), in(w.values)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.SpMMBackwardInput(s, m[0], m[1], w.csr(m[2:]), n)
		},
	}
}

func (of maker) sddmm(n int, w pattern, withBias bool) call {
	r := of.draw()
	dout, inp := r.normal(n*w.rows), r.normal(n*w.cols)
	dvalues, dbias := r.normal(len(w.colIdx)), r.normal(w.rows)
	if !withBias {
		dbias = nil
	}
	wantBias, boundBias := clone(dbias), abs(dbias)
	product, bound := make([]float64, w.rows*w.cols), make([]float64, w.rows*w.cols)
	ref.MatmulBackwardWeight(product, wantBias, dout, inp, n, w.cols, w.rows)
	ref.MatmulBackwardWeight(bound, boundBias, abs(dout), abs(inp), n, w.cols, w.rows)
	wantValues, boundValues := w.gather(product), w.gather(bound)
	ref.Add(wantValues, wantValues, dvalues)
	ref.Add(boundValues, boundValues, abs(dvalues))
	return call{
		fmt.Sprintf("SDDMM/n=%d,w=%v,bias=%t", n, w, withBias),
		[]operand{addWide(dvalues, wantValues, boundValues), addWide(dbias, wantBias, boundBias),
			in(dout), in(inp), in(w.rowPtr), in(w.colIdx)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.SDDMM(s, m[0], m[1], m[2], m[3], w.csr([]tensor.Mem{m[4], m[5], {}}), n)
		},
	}
}
