package ref

// GatherRows sets row i of out, rows of c, to a row of inp,
//
//	out[i] = factor[i] · inp[rows[i]]
//
// A nil factor is 1. It panics if a row is outside inp.
func GatherRows[F Float](out, inp []F, rows []int32, factor []F, c int) {
	for i, row := range rows {
		to, from := out[i*c:][:c], inp[int(row)*c:][:c]
		if factor == nil {
			copy(to, from)
			continue
		}
		for j, x := range from {
			to[j] = factor[i] * x
		}
	}
}

// ScatterRows adds row i of add to a row of out, both of rows of c:
//
//	out[rows[i]] = keep[i] · out[rows[i]] + factor[i] · add[i]
//
// A nil factor is 1. No row is named twice. It panics if a row is outside out.
func ScatterRows[F Float](out, add []F, rows []int32, keep, factor []F, c int) {
	for i, row := range rows {
		times := F(1)
		if factor != nil {
			times = factor[i]
		}
		to := out[int(row)*c:][:c]
		for j, x := range add[i*c:][:c] {
			to[j] = keep[i]*to[j] + times*x
		}
	}
}

// GateGradient adds to dlogits what the rows of c of dout say of a gate between a and b:
//
//	dlogits[rows[i]] += factor[i] · Σ_c dout[i] · (a[i] - b[i])
//
// No place is named twice. It panics if one is outside dlogits.
func GateGradient[F Float](dlogits, dout, a, b []F, rows []int32, factor []F, c int) {
	for i, row := range rows {
		sum := F(0)
		for j := i * c; j < (i+1)*c; j++ {
			sum += dout[j] * (a[j] - b[j])
		}
		dlogits[row] += factor[i] * sum
	}
}
