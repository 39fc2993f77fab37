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
