package ref

// gatherRows sets row i of out, rows of c, to a row of inp,
//
//	out[i] = factor[i] · inp[rows[i]]
//
// A nil factor is 1. It panics if a row is outside inp.
func gatherRows[F Float](out, inp []F, rows []int32, factor []F, c int) {
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

// scatterRows adds row i of add to a row of out, both of rows of c:
//
//	out[rows[i]] = keep[i] · out[rows[i]] + factor[i] · add[i]
//
// A nil factor is 1. No row is named twice. It panics if a row is outside out.
func scatterRows[F Float](out, add []F, rows []int32, keep, factor []F, c int) {
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

// combineRows sets row i of out (n, c) to a sum of rows of inp, in ascending order of j < k:
//
//	out[i] = Σ_j factor[i,j] · inp[rows[i,j]]
//
// A nil factor is 1. A negative row counts nothing. It panics if a row is behind inp's.
func combineRows[F Float](out, inp []F, rows []int32, factor []F, n, k, c int) {
	for i := range n {
		to, empty := out[i*c:][:c], true
		for j := i * k; j < (i+1)*k; j++ {
			if rows[j] < 0 {
				continue
			}
			times := F(1)
			if factor != nil {
				times = factor[j]
			}
			if from := inp[int(rows[j])*c:][:c]; empty {
				scaled(to, times, from)
			} else {
				axpy(to, times, from)
			}
			empty = false
		}
		if empty {
			clear(to)
		}
	}
}

// scaled sets y to a·x; both have the same length.
func scaled[F Float](y []F, a F, x []F) {
	for i, xi := range x {
		y[i] = a * xi
	}
}

// combineGradient sets what each row of CombineRows counts for, with j < k:
//
//	dfactor[i,j] = dout[i] · inp[rows[i,j]]
//
// It is 0 of a negative row. It panics if a row is behind inp's.
func combineGradient[F Float](dfactor, dout, inp []F, rows []int32, n, k, c int) {
	for i := range n {
		for j := i * k; j < (i+1)*k; j++ {
			dfactor[j] = 0
			if rows[j] >= 0 {
				dfactor[j] = dot(dout[i*c:][:c], inp[int(rows[j])*c:][:c])
			}
		}
	}
}

// gateGradient adds to dlogits what the rows of c of dout say of a gate between a and b:
//
//	dlogits[rows[i]] += factor[i] · Σ_c dout[i] · (a[i] - b[i])
//
// No place is named twice. It panics if one is outside dlogits.
func gateGradient[F Float](dlogits, dout, a, b []F, rows []int32, factor []F, c int) {
	for i, row := range rows {
		sum := F(0)
		for j := i * c; j < (i+1)*c; j++ {
			sum += dout[j] * (a[j] - b[j])
		}
		dlogits[row] += factor[i] * sum
	}
}
