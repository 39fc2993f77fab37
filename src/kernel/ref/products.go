package ref

// MatmulForward sets out (n, o) = inp (n, c) · weight (o, c)ᵀ + bias (o). bias
// may be nil.
func MatmulForward[F Float](out, inp, weight, bias []F, n, c, o int) {
	for i := range n {
		row := out[i*o:][:o]
		matvec(row, inp[i*c:][:c], weight, c)
		for j, b := range bias {
			row[j] += b
		}
	}
}

// matmulBackwardInput sets dinp (n, c) = dout (n, o) · weight (o, c).
func matmulBackwardInput[F Float](dinp, dout, weight []F, n, c, o int) {
	clear(dinp)
	for i := range n {
		vecmat(dinp[i*c:][:c], dout[i*o:][:o], weight, c)
	}
}

// matmulBackwardWeight adds doutᵀ·inp to dweight (o, c) and Σ_n dout to dbias
// (o), which may be nil. dout is (n, o), inp (n, c).
func matmulBackwardWeight[F Float](dweight, dbias, dout, inp []F, n, c, o int) {
	column := make([]F, n) // of dout
	for j := range o {
		for i := range column {
			column[i] = dout[i*o+j]
		}
		vecmat(dweight[j*c:][:c], column, inp, c)
	}
	if dbias != nil {
		sumRows(dbias, dout, n)
	}
}

// sumRows adds the n rows of x (n, len(dst)) to dst.
func sumRows[F Float](dst, x []F, n int) {
	for i := range n {
		axpy(dst, 1, x[i*len(dst):][:len(dst)])
	}
}

// csr is a sparse matrix (Rows, Cols) in compressed rows: entry e of row r,
// for RowPtr[r] <= e < RowPtr[r+1], is Values[e] at column ColIdx[e].
type csr[F Float] struct {
	Rows, Cols     int
	RowPtr, ColIdx []int32
	Values         []F
}

// row returns the columns of row r and the index of its first entry.
func (w csr[F]) row(r int) (columns []int32, first int) {
	first = int(w.RowPtr[r])
	return w.ColIdx[first:w.RowPtr[r+1]], first
}

// spMMForward sets out (n, w.Rows) = inp (n, w.Cols) · wᵀ + bias (w.Rows).
// bias may be nil. The bits are those of MatmulForward with zeros in the
// places that w leaves out.
func spMMForward[F Float](out, inp []F, w csr[F], bias []F, n int) {
	for i := range n {
		x, y := inp[i*w.Cols:][:w.Cols], out[i*w.Rows:][:w.Rows]
		for r := range y {
			columns, first := w.row(r)
			var sum F
			for e, value := range w.Values[first:][:len(columns)] {
				sum += x[columns[e]] * value
			}
			y[r] = sum
		}
		for r, b := range bias {
			y[r] += b
		}
	}
}

// spMMBackwardInput sets dinp (n, w.Cols) = dout (n, w.Rows) · w.
func spMMBackwardInput[F Float](dinp, dout []F, w csr[F], n int) {
	clear(dinp)
	for i := range n {
		dx := dinp[i*w.Cols:][:w.Cols]
		for r, dy := range dout[i*w.Rows:][:w.Rows] {
			columns, first := w.row(r)
			for e, value := range w.Values[first:][:len(columns)] {
				dx[columns[e]] += dy * value
			}
		}
	}
}

// sddmm adds to dvalues, at each kept entry (r, c) of w, the element Σ_n dout[n,r]·inp[n,c] of
// doutᵀ·inp. It adds Σ_n dout to dbias (w.Rows), which may be nil. dout is (n, w.Rows), inp (n,
// w.Cols). w.Values is not read.
func sddmm[F Float](dvalues, dbias, dout, inp []F, w csr[F], n int) {
	for i := range n {
		x := inp[i*w.Cols:][:w.Cols]
		for r, dy := range dout[i*w.Rows:][:w.Rows] {
			columns, first := w.row(r)
			dv := dvalues[first:][:len(columns)]
			for e, column := range columns {
				dv[e] += dy * x[column]
			}
		}
	}
	if dbias != nil {
		sumRows(dbias, dout, n)
	}
}
